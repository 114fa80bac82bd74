"""More kinds of objects that hide something (`explorer_hidden_kinds.py`): what the standard library keeps inside.

For some of them nobody can say what they hold: then the verdict has to be bounded, with the name.
"""

from __future__ import annotations

import array
import asyncio
import bz2
import codecs
import collections
import contextvars
import csv
import ctypes
import decimal
import hashlib
import hmac
import io
import itertools
import lzma
import mmap
import pickle
import queue
import random
import re
import selectors
import sqlite3
import struct
import threading
import types
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from typing import Any
from xml.parsers import expat

from explorer_hidden_kinds import KINDS


def steps(name: str, make: Callable[[], Any]) -> None:
    """Something that is gone through: one step further is another object."""
    KINDS[name] = (lambda: make(), lambda made, value: next(made), lambda made: next(made))


steps("count", lambda: itertools.count(5))
steps("cycle", lambda: itertools.cycle([1, 2, 3]))
steps("chain", lambda: itertools.chain([1], [2], [3]))
steps("slice_of_an_iterator", lambda: itertools.islice(itertools.count(), 1, 9))
steps("one_of_two_iterators", lambda: itertools.tee([1, 2, 3])[0])
steps("groups", lambda: itertools.groupby([1, 2, 2, 3]))
steps("sums", lambda: itertools.accumulate([1, 2, 3]))
steps("pairs", lambda: itertools.pairwise([1, 2, 3, 4]))
steps("product", lambda: itertools.product([1, 2], [3, 4]))
steps("permutations", lambda: itertools.permutations([1, 2, 3]))
steps("combinations_of_numbers", lambda: itertools.combinations([1, 2, 3], 2))
steps("repeated", lambda: itertools.chain([0], itertools.repeat(1, 2)))
steps("taken_while", lambda: itertools.takewhile(lambda number: number < 3, [1, 2, 3]))
steps("dropped_while", lambda: itertools.dropwhile(lambda number: number < 2, [1, 2, 3]))
steps("selected", lambda: itertools.compress("abc", [1, 1, 1]))
steps("zip", lambda: zip("abc", [1, 2, 3], strict=False))
steps("longest_zip", lambda: itertools.zip_longest("abc", [1]))
steps("map", lambda: map(str, [1, 2, 3]))
steps("filter", lambda: filter(None, [1, 2, 3]))
steps("numbered", lambda: enumerate("abc"))
steps("backwards", lambda: reversed([1, 2, 3]))
steps("over_a_dictionary", lambda: iter({"a": 1, "b": 2, "c": 3}.items()))
steps("over_a_text", lambda: iter("abc"))
steps("over_bytes", lambda: iter(b"abc"))
steps("over_an_array", lambda: iter(array.array("i", [1, 2, 3])))
steps("over_a_deque", lambda: iter(collections.deque([1, 2, 3])))
steps("until_a_value", lambda: iter(iter([1, 2, 3]).__next__, 9))
steps("generator", lambda: (number for number in (1, 2, 3)))
steps("matches", lambda: re.finditer(".", "abc"))
steps("unpacked", lambda: struct.iter_unpack("b", b"abc"))
steps("lines_of_a_table", lambda: csv.reader(["1,2", "3,4", "5,6"]))
steps("over_what_can_be_indexed", lambda: iter(type("Indexed", (), {"__getitem__": lambda self, index: index})()))


def inside(name: str, make: Callable[[], Any], put: Callable[[Any], object], look: Callable[[Any], Any]) -> None:
    """Something that is changed by one call, whatever the value."""
    KINDS[name] = (lambda: make(), lambda made, value: put(made), look)


inside("hash", hashlib.sha256, lambda made: made.update(b"a"), lambda made: made.hexdigest())
inside("hash_of_blake", hashlib.blake2b, lambda made: made.update(b"a"), lambda made: made.hexdigest())
inside(
    "keyed_hash", lambda: hmac.new(b"k", b"", "sha256"), lambda made: made.update(b"a"), lambda made: made.hexdigest()
)
inside("compressor", zlib.compressobj, lambda made: made.compress(b"a"), lambda made: made.flush())
inside("compressor_of_bz2", bz2.BZ2Compressor, lambda made: made.compress(b"a"), lambda made: made.flush())
inside("compressor_of_lzma", lzma.LZMACompressor, lambda made: made.compress(b"a"), lambda made: made.flush())
inside("decompressor", zlib.decompressobj, lambda made: made.decompress(zlib.compress(b"abc")), lambda made: made.eof)
for _encoding, _half in (("utf-8", b"\xc3"), ("shift_jis", b"\x83"), ("utf-16", b"\xff")):
    inside(
        f"decoder_of_{_encoding}",
        codecs.getincrementaldecoder(_encoding),
        lambda made, half=_half: made.decode(half),  # type: ignore[misc]
        lambda made: made.getstate(),
    )
inside(
    "decoder_of_newlines",
    lambda: io.IncrementalNewlineDecoder(None, True),
    lambda made: made.decode("a\r"),
    lambda made: made.newlines or made.getstate(),
)
inside(
    "scanner_of_a_pattern",
    lambda: re.compile(".").scanner("abc"),  # type: ignore[attr-defined]
    lambda made: made.search(),
    lambda made: made.search().group(),
)
inside(
    "database",
    lambda: sqlite3.connect(":memory:"),
    lambda made: made.execute("create table kept (number)"),
    lambda made: made.execute("select count(*) from sqlite_master").fetchall(),
)
inside("parser", expat.ParserCreate, lambda made: made.Parse("<a>"), lambda made: made.CurrentByteIndex)
inside("element", lambda: ET.Element("a"), lambda made: ET.SubElement(made, "b"), lambda made: len(made))
inside("builder_of_elements", ET.TreeBuilder, lambda made: made.start("a", {}), lambda made: bool(_closed(made)))
inside(
    "events_of_elements", ET.XMLPullParser, lambda made: made.feed("<a/>"), lambda made: len(list(made.read_events()))
)
inside("selector", selectors.SelectSelector, lambda made: made.register(0, 1, 2), lambda made: len(made.get_map()))
inside(
    "selector_of_the_system",
    selectors.DefaultSelector,
    lambda made: made.__dict__.update(kept=1),
    lambda made: made.__dict__.get("kept"),
)
inside(
    "writer_of_a_table",
    lambda: [io.StringIO()],
    lambda made: csv.writer(made[0]).writerow([1]),
    lambda made: made[0].getvalue(),
)
inside("bytes_in_memory", lambda: io.BytesIO(b"abc"), lambda made: made.read(1), lambda made: made.tell())
inside(
    "text_over_bytes", lambda: io.TextIOWrapper(io.BytesIO(b"abc")), lambda made: made.read(1), lambda made: made.read()
)
inside(
    "buffered_reader",
    lambda: io.BufferedReader(io.BytesIO(b"abc")),
    lambda made: made.read(1),
    lambda made: made.read(),
)
inside(
    "buffered_writer", lambda: io.BufferedWriter(io.BytesIO()), lambda made: made.write(b"a"), lambda made: made.tell()
)
inside("memory", lambda: mmap.mmap(-1, 8), lambda made: made.write(b"a"), lambda made: made.tell())
inside("array", lambda: array.array("i"), lambda made: made.append(1), lambda made: made.tolist())
inside("structure", lambda: _Pair(1, 2), lambda made: setattr(made, "first", 7), lambda made: made.first)
inside("array_of_ctypes", lambda: (ctypes.c_int * 2)(), lambda made: made.__setitem__(0, 7), lambda made: made[0])
inside(
    "pointer",
    lambda: ctypes.pointer(ctypes.c_int(1)),
    lambda made: setattr(made.contents, "value", 7),
    lambda made: made[0],
)
inside(
    "buffer_of_ctypes",
    lambda: ctypes.create_string_buffer(4),
    lambda made: setattr(made, "value", b"a"),
    lambda made: made.value,
)
inside("random_numbers", lambda: random.Random(1), lambda made: made.random(), lambda made: made.random())
inside("pickler", lambda: pickle.Pickler(io.BytesIO()), lambda made: made.dump([1]), lambda made: len(made.memo.copy()))


class _Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_int))


def _closed(builder: Any) -> Any:
    try:
        return builder.end("a") is not None
    except Exception:
        return None


def putting(name: str, make: Callable[[], Any], put: Callable[[Any, Any], object], look: Callable[[Any], Any]) -> None:
    """Something that takes the value."""
    KINDS[name] = (lambda: make(), put, look)


putting("queue", queue.Queue, lambda made, value: made.put_nowait(value), lambda made: made.qsize())
putting("last_in_first_out", queue.LifoQueue, lambda made, value: made.put_nowait(value), lambda made: made.qsize())
putting("simple_queue", queue.SimpleQueue, lambda made, value: made.put(value), lambda made: made.qsize())
for _of in (asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue):
    putting(
        f"asyncio_{_of.__name__}",
        _of,
        lambda made, value: made.put_nowait((1, id)),
        lambda made: made.qsize(),
    )
putting(
    "chain_of_maps",
    lambda: collections.ChainMap({}, {}),
    lambda made, value: made.maps[1].update(a=value),
    lambda made: dict(made),
)
putting("dictionary_of_a_user", collections.UserDict, lambda made, value: made.update(a=value), lambda made: dict(made))
putting("list_of_a_user", collections.UserList, lambda made, value: made.append(value), lambda made: list(made))
putting("counter", collections.Counter, lambda made, value: made.update("a"), lambda made: made["a"])
putting(
    "factory_of_defaults",
    lambda: collections.defaultdict(list),
    lambda made, value: setattr(made, "default_factory", lambda: value),
    lambda made: made["a"],
)
putting(
    "bounded_deque",
    lambda: [collections.deque([1], maxlen=2)],
    lambda made, value: made.__setitem__(0, collections.deque([1], maxlen=3)),
    lambda made: made[0].maxlen,
)
putting(
    "order_of_a_dictionary",
    lambda: {"a": 1, "b": 2},
    lambda made, value: made.update(a=made.pop("a")),
    lambda made: list(made),
)
putting(
    "view_of_a_dictionary",
    lambda: (lambda held: (held, held.keys()))({}),
    lambda made, value: made[0].update(a=value),
    lambda made: list(made[1]),
)
putting(
    "proxy_of_a_dictionary",
    lambda: (lambda held: [held, types.MappingProxyType(held)])({}),
    lambda made, value: made.pop(0).update(a=value),
    lambda made: dict(made[-1]),
)
putting(
    "local_of_threads",
    threading.local,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting("event_of_threads", threading.Event, lambda made, value: made.set(), lambda made: made.is_set())
putting("lock_of_threads", threading.Lock, lambda made, value: made.acquire(), lambda made: made.locked())
putting(
    "lock_taken_twice",
    threading.RLock,
    lambda made, value: made.acquire(),
    lambda made: repr(made).partition("count=")[2][:1],
)
putting(
    "semaphore_of_threads", lambda: threading.Semaphore(3), lambda made, value: made.acquire(), lambda made: made._value
)
putting("event", asyncio.Event, lambda made, value: made.set(), lambda made: made.is_set())
putting(
    "semaphore", lambda: asyncio.Semaphore(3), lambda made, value: setattr(made, "_value", 1), lambda made: made._value
)
putting(
    "condition",
    asyncio.Condition,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "group_of_tasks",
    asyncio.TaskGroup,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "limit_of_time",
    lambda: asyncio.timeout(None),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "stream",
    lambda: asyncio.StreamReader(loop=asyncio.get_running_loop()),
    lambda made, value: made.feed_data(b"a"),
    lambda made: bytes(made._buffer),
)
putting(
    "result_of_a_future",
    lambda: asyncio.get_running_loop().create_future(),
    lambda made, value: made.set_result(value),
    lambda made: made.done(),
)
putting(
    "callback_of_a_future",
    lambda: asyncio.get_running_loop().create_future(),
    lambda made, value: made.add_done_callback(print),
    lambda made: len(made._callbacks or ()),
)
putting(
    "message_of_a_cancellation",
    lambda: asyncio.get_running_loop().create_future(),
    lambda made, value: made.cancel("a"),
    lambda made: made._cancel_message,
)
putting(
    "name_of_a_task",
    lambda: None,
    lambda made, value: asyncio.current_task().set_name("a"),  # type: ignore[union-attr]
    lambda made: asyncio.current_task().get_name(),  # type: ignore[union-attr]
)
putting(
    "handle_that_was_cancelled",
    lambda: asyncio.get_running_loop().call_soon(lambda: None),
    lambda made, value: made.cancel(),
    lambda made: made.cancelled(),
)
putting(
    "timer_that_was_cancelled",
    lambda: asyncio.get_running_loop().call_later(9, lambda: None),
    lambda made, value: made.cancel(),
    lambda made: made.cancelled(),
)
putting(
    "handler_of_the_loop",
    lambda: None,
    lambda made, value: asyncio.get_running_loop().set_exception_handler(lambda *_: value),
    lambda made: asyncio.get_running_loop().get_exception_handler() is None,
)
putting(
    "future_of_threads",
    lambda: __import__("concurrent.futures").futures.Future(),
    lambda made, value: made.set_result(value),
    lambda made: made.done(),
)


_VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("_VARIABLE", default=0)
putting(
    "context",
    contextvars.copy_context,
    lambda made, value: made.run(_VARIABLE.set, value),
    lambda made: made.get(_VARIABLE),
)
putting("variable_of_a_context", lambda: None, lambda made, value: _VARIABLE.set(value), lambda made: _VARIABLE.get())
putting(
    "token_of_a_context",
    lambda: [_VARIABLE.set(1)],
    lambda made, value: _VARIABLE.reset(made[0]),
    lambda made: "used" in repr(made[0]),
)
putting(
    "context_of_decimal",
    lambda: decimal.Context(),
    lambda made, value: setattr(made, "prec", 7),
    lambda made: made.prec,
)
putting(
    "flags_of_decimal",
    lambda: decimal.Context(),
    lambda made, value: made.divide(1, 3),
    lambda made: made.flags[decimal.Inexact],
)

putting(
    "notes_of_an_error",
    lambda: ValueError(1),
    lambda made, value: made.add_note("a"),
    lambda made: getattr(made, "__notes__", 0),
)
putting(
    "cause_of_an_error",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "__cause__", KeyError(1)),
    lambda made: made.__cause__,
)
putting(
    "context_of_an_error",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "__context__", KeyError(1)),
    lambda made: made.__context__,
)
putting(
    "whether_a_context_is_shown",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "__suppress_context__", True),
    lambda made: made.__suppress_context__,
)
putting(
    "arguments_of_an_error",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "args", (2,)),
    lambda made: made.args,
)
putting(
    "group_of_errors",
    lambda: ExceptionGroup("a", [ValueError(1)]),
    lambda made, value: made.exceptions[0].add_note("a"),
    lambda made: len(getattr(made.exceptions[0], "__notes__", ())),
)
putting(
    "value_of_an_end", lambda: StopIteration(1), lambda made, value: setattr(made, "value", 2), lambda made: made.value
)
putting(
    "name_of_a_missing_attribute",
    lambda: AttributeError("a"),
    lambda made, value: setattr(made, "name", "b"),
    lambda made: made.name,
)
putting(
    "place_of_a_wrong_text",
    lambda: UnicodeDecodeError("a", b"b", 0, 1, "c"),
    lambda made, value: setattr(made, "start", 3),
    lambda made: made.start,
)
putting(
    "file_of_an_error",
    lambda: OSError(1, "a", "b"),
    lambda made, value: setattr(made, "filename", "c"),
    lambda made: made.filename,
)
putting("code_of_an_exit", lambda: SystemExit(1), lambda made, value: setattr(made, "code", 2), lambda made: made.code)
putting(
    "traceback_of_an_error",
    lambda: _raised(),
    lambda made, value: made.with_traceback(None),
    lambda made: made.__traceback__ is None,
)


def _raised() -> ValueError:
    try:
        raise ValueError(1)
    except ValueError as error:
        return error
