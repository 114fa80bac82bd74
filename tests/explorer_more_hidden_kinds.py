"""More kinds of objects that hide something (`explorer_hidden_kinds.py`): what the standard library keeps inside.

For some of them nobody can say what they hold: then the verdict has to be bounded, with the name.
"""

from __future__ import annotations

import abc
import array
import asyncio
import bz2
import codecs
import collections
import contextlib
import contextvars
import csv
import ctypes
import datetime
import decimal
import enum
import functools
import hashlib
import hmac
import io
import ipaddress
import itertools
import logging
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
import weakref
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from typing import Any
from xml.parsers import expat

from explorer_hidden_kinds import KINDS, Thing, kind


def _steps(name: str, make: Callable[[], Any]) -> None:
    """Something that is gone through: one step further is another object."""
    KINDS[name] = (lambda: make(), lambda made, value: next(made), lambda made: next(made))


_steps("count", lambda: itertools.count(5))
_steps("cycle", lambda: itertools.cycle([1, 2, 3]))
_steps("chain", lambda: itertools.chain([1], [2], [3]))
_steps("slice_of_an_iterator", lambda: itertools.islice(itertools.count(), 1, 9))
_steps("one_of_two_iterators", lambda: itertools.tee([1, 2, 3])[0])
_steps("groups", lambda: itertools.groupby([1, 2, 2, 3]))
_steps("sums", lambda: itertools.accumulate([1, 2, 3]))
_steps("pairs", lambda: itertools.pairwise([1, 2, 3, 4]))
_steps("product", lambda: itertools.product([1, 2], [3, 4]))
_steps("permutations", lambda: itertools.permutations([1, 2, 3]))
_steps("combinations_of_numbers", lambda: itertools.combinations([1, 2, 3], 2))
_steps("repeated", lambda: itertools.chain([0], itertools.repeat(1, 2)))
_steps("taken_while", lambda: itertools.takewhile(lambda number: number < 3, [1, 2, 3]))
_steps("dropped_while", lambda: itertools.dropwhile(lambda number: number < 2, [1, 2, 3]))
_steps("selected", lambda: itertools.compress("abc", [1, 1, 1]))
_steps("zip", lambda: zip("abc", [1, 2, 3], strict=False))
_steps("longest_zip", lambda: itertools.zip_longest("abc", [1]))
_steps("map", lambda: map(str, [1, 2, 3]))
_steps("filter", lambda: filter(None, [1, 2, 3]))
_steps("numbered", lambda: enumerate("abc"))
_steps("backwards", lambda: reversed([1, 2, 3]))
_steps("over_a_dictionary", lambda: iter({"a": 1, "b": 2, "c": 3}.items()))
_steps("over_a_text", lambda: iter("abc"))
_steps("over_bytes", lambda: iter(b"abc"))
_steps("over_an_array", lambda: iter(array.array("i", [1, 2, 3])))
_steps("over_a_deque", lambda: iter(collections.deque([1, 2, 3])))
_steps("until_a_value", lambda: iter(iter([1, 2, 3]).__next__, 9))
_steps("generator", lambda: (number for number in (1, 2, 3)))
_steps("matches", lambda: re.finditer(".", "abc"))
_steps("unpacked", lambda: struct.iter_unpack("b", b"abc"))
_steps("lines_of_a_table", lambda: csv.reader(["1,2", "3,4", "5,6"]))
_steps("over_what_can_be_indexed", lambda: iter(type("Indexed", (), {"__getitem__": lambda self, index: index})()))


def _inside(name: str, make: Callable[[], Any], put: Callable[[Any], object], look: Callable[[Any], Any]) -> None:
    """Something that is changed by one call, whatever the value."""
    KINDS[name] = (lambda: make(), lambda made, value: put(made), look)


_inside("hash", hashlib.sha256, lambda made: made.update(b"a"), lambda made: made.hexdigest())
_inside("hash_of_blake", hashlib.blake2b, lambda made: made.update(b"a"), lambda made: made.hexdigest())
_inside(
    "keyed_hash", lambda: hmac.new(b"k", b"", "sha256"), lambda made: made.update(b"a"), lambda made: made.hexdigest()
)
_inside("compressor", zlib.compressobj, lambda made: made.compress(b"a"), lambda made: made.flush())
_inside("compressor_of_bz2", bz2.BZ2Compressor, lambda made: made.compress(b"a"), lambda made: made.flush())
_inside("compressor_of_lzma", lzma.LZMACompressor, lambda made: made.compress(b"a"), lambda made: made.flush())
_inside("decompressor", zlib.decompressobj, lambda made: made.decompress(zlib.compress(b"abc")), lambda made: made.eof)
for _encoding, _half in (("utf-8", b"\xc3"), ("shift_jis", b"\x83"), ("utf-16", b"\xff")):
    _inside(
        f"decoder_of_{_encoding}",
        codecs.getincrementaldecoder(_encoding),
        lambda made, half=_half: made.decode(half),  # type: ignore[misc]
        lambda made: made.getstate(),
    )
_inside(
    "decoder_of_newlines",
    lambda: io.IncrementalNewlineDecoder(None, True),
    lambda made: made.decode("a\r"),
    lambda made: made.newlines or made.getstate(),
)
_inside(
    "scanner_of_a_pattern",
    lambda: re.compile(".").scanner("abc"),  # type: ignore[attr-defined]
    lambda made: made.search(),
    lambda made: made.search().group(),
)
_inside(
    "database",
    lambda: sqlite3.connect(":memory:"),
    lambda made: made.execute("create table kept (number)"),
    lambda made: made.execute("select count(*) from sqlite_master").fetchall(),
)
_inside("parser", expat.ParserCreate, lambda made: made.Parse("<a>"), lambda made: made.CurrentByteIndex)
_inside("element", lambda: ET.Element("a"), lambda made: ET.SubElement(made, "b"), lambda made: len(made))
_inside("builder_of_elements", ET.TreeBuilder, lambda made: made.start("a", {}), lambda made: bool(_closed(made)))
_inside(
    "events_of_elements", ET.XMLPullParser, lambda made: made.feed("<a/>"), lambda made: len(list(made.read_events()))
)
_inside("selector", selectors.SelectSelector, lambda made: made.register(0, 1, 2), lambda made: len(made.get_map()))
_inside(
    "selector_of_the_system",
    selectors.DefaultSelector,
    lambda made: made.__dict__.update(kept=1),
    lambda made: made.__dict__.get("kept"),
)
_inside(
    "writer_of_a_table",
    lambda: [io.StringIO()],
    lambda made: csv.writer(made[0]).writerow([1]),
    lambda made: made[0].getvalue(),
)
_inside("bytes_in_memory", lambda: io.BytesIO(b"abc"), lambda made: made.read(1), lambda made: made.tell())
_inside(
    "text_over_bytes", lambda: io.TextIOWrapper(io.BytesIO(b"abc")), lambda made: made.read(1), lambda made: made.read()
)
_inside(
    "buffered_reader",
    lambda: io.BufferedReader(io.BytesIO(b"abc")),
    lambda made: made.read(1),
    lambda made: made.read(),
)  # type: ignore[arg-type]
_inside(
    "buffered_writer", lambda: io.BufferedWriter(io.BytesIO()), lambda made: made.write(b"a"), lambda made: made.tell()
)  # type: ignore[arg-type]
_inside("memory", lambda: mmap.mmap(-1, 8), lambda made: made.write(b"a"), lambda made: made.tell())
_inside("array", lambda: array.array("i"), lambda made: made.append(1), lambda made: made.tolist())
_inside("structure", lambda: _Pair(1, 2), lambda made: setattr(made, "first", 7), lambda made: made.first)
_inside("array_of_ctypes", lambda: (ctypes.c_int * 2)(), lambda made: made.__setitem__(0, 7), lambda made: made[0])
_inside(
    "pointer",
    lambda: ctypes.pointer(ctypes.c_int(1)),
    lambda made: setattr(made.contents, "value", 7),
    lambda made: made[0],
)
_inside(
    "buffer_of_ctypes",
    lambda: ctypes.create_string_buffer(4),
    lambda made: setattr(made, "value", b"a"),
    lambda made: made.value,
)
_inside("random_numbers", lambda: random.Random(1), lambda made: made.random(), lambda made: made.random())
_inside(
    "pickler", lambda: pickle.Pickler(io.BytesIO()), lambda made: made.dump([1]), lambda made: len(made.memo.copy())
)


class _Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_int))


def _closed(builder: Any) -> Any:
    try:
        return builder.end("a") is not None
    except Exception:
        return None


def _putting(name: str, make: Callable[[], Any], put: Callable[[Any, Any], object], look: Callable[[Any], Any]) -> None:
    """Something that takes the value."""
    KINDS[name] = (lambda: make(), put, look)


_putting("queue", queue.Queue, lambda made, value: made.put_nowait(value), lambda made: made.qsize())
_putting("last_in_first_out", queue.LifoQueue, lambda made, value: made.put_nowait(value), lambda made: made.qsize())
_putting("simple_queue", queue.SimpleQueue, lambda made, value: made.put(value), lambda made: made.qsize())
for _of in (asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue):
    _putting(
        f"asyncio_{_of.__name__}",
        _of,  # type: ignore[arg-type]
        lambda made, value: made.put_nowait((1, id)),
        lambda made: made.qsize(),
    )
_putting(
    "chain_of_maps",
    lambda: collections.ChainMap({}, {}),
    lambda made, value: made.maps[1].update(a=value),
    lambda made: dict(made),
)
_putting(
    "dictionary_of_a_user", collections.UserDict, lambda made, value: made.update(a=value), lambda made: dict(made)
)
_putting("list_of_a_user", collections.UserList, lambda made, value: made.append(value), lambda made: list(made))
_putting("counter", collections.Counter, lambda made, value: made.update("a"), lambda made: made["a"])
_putting(
    "factory_of_defaults",
    lambda: collections.defaultdict(list),
    lambda made, value: setattr(made, "default_factory", lambda: value),
    lambda made: made["a"],
)
_putting(
    "bounded_deque",
    lambda: [collections.deque([1], maxlen=2)],
    lambda made, value: made.__setitem__(0, collections.deque([1], maxlen=3)),
    lambda made: made[0].maxlen,
)
_putting(
    "order_of_a_dictionary",
    lambda: {"a": 1, "b": 2},
    lambda made, value: made.update(a=made.pop("a")),
    lambda made: list(made),
)
_putting(
    "view_of_a_dictionary",
    lambda: (lambda held: (held, held.keys()))({}),
    lambda made, value: made[0].update(a=value),
    lambda made: list(made[1]),
)
_putting(
    "proxy_of_a_dictionary",
    lambda: (lambda held: [held, types.MappingProxyType(held)])({}),
    lambda made, value: made.pop(0).update(a=value),
    lambda made: dict(made[-1]),
)
_putting(
    "local_of_threads",
    threading.local,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting("event_of_threads", threading.Event, lambda made, value: made.set(), lambda made: made.is_set())
_putting("lock_of_threads", threading.Lock, lambda made, value: made.acquire(), lambda made: made.locked())
_putting(
    "lock_taken_twice",
    threading.RLock,
    lambda made, value: made.acquire(),
    lambda made: repr(made).partition("count=")[2][:1],
)
_putting(
    "semaphore_of_threads", lambda: threading.Semaphore(3), lambda made, value: made.acquire(), lambda made: made._value
)
_putting("event", asyncio.Event, lambda made, value: made.set(), lambda made: made.is_set())
_putting(
    "semaphore", lambda: asyncio.Semaphore(3), lambda made, value: setattr(made, "_value", 1), lambda made: made._value
)
_putting(
    "condition",
    asyncio.Condition,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "group_of_tasks",
    asyncio.TaskGroup,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "limit_of_time",
    lambda: asyncio.timeout(None),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "stream",
    lambda: asyncio.StreamReader(loop=asyncio.get_running_loop()),
    lambda made, value: made.feed_data(b"a"),
    lambda made: bytes(made._buffer),
)
_putting(
    "result_of_a_future",
    lambda: asyncio.get_running_loop().create_future(),
    lambda made, value: made.set_result(value),
    lambda made: made.done(),
)
_putting(
    "callback_of_a_future",
    lambda: asyncio.get_running_loop().create_future(),
    lambda made, value: made.add_done_callback(print),
    lambda made: len(made._callbacks or ()),
)
_putting(
    "message_of_a_cancellation",
    lambda: asyncio.get_running_loop().create_future(),
    lambda made, value: made.cancel("a"),
    lambda made: made._cancel_message,
)
_putting(
    "name_of_a_task",
    lambda: None,
    lambda made, value: asyncio.current_task().set_name("a"),
    lambda made: asyncio.current_task().get_name(),
)  # type: ignore[union-attr]
_putting(
    "handle_that_was_cancelled",
    lambda: asyncio.get_running_loop().call_soon(lambda: None),
    lambda made, value: made.cancel(),
    lambda made: made.cancelled(),
)
_putting(
    "timer_that_was_cancelled",
    lambda: asyncio.get_running_loop().call_later(9, lambda: None),
    lambda made, value: made.cancel(),
    lambda made: made.cancelled(),
)
_putting(
    "handler_of_the_loop",
    lambda: None,
    lambda made, value: asyncio.get_running_loop().set_exception_handler(lambda *_: value),
    lambda made: asyncio.get_running_loop().get_exception_handler() is None,
)
_putting(
    "future_of_threads",
    lambda: __import__("concurrent.futures").futures.Future(),
    lambda made, value: made.set_result(value),
    lambda made: made.done(),
)


_VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("_VARIABLE", default=0)
_putting(
    "context",
    contextvars.copy_context,
    lambda made, value: made.run(_VARIABLE.set, value),
    lambda made: made.get(_VARIABLE),
)
_putting("variable_of_a_context", lambda: None, lambda made, value: _VARIABLE.set(value), lambda made: _VARIABLE.get())
_putting(
    "token_of_a_context",
    lambda: [_VARIABLE.set(1)],
    lambda made, value: _VARIABLE.reset(made[0]),
    lambda made: "used" in repr(made[0]),
)
_putting(
    "context_of_decimal",
    lambda: decimal.Context(),
    lambda made, value: setattr(made, "prec", 7),
    lambda made: made.prec,
)
_putting(
    "flags_of_decimal",
    lambda: decimal.Context(),
    lambda made, value: made.divide(1, 3),
    lambda made: made.flags[decimal.Inexact],
)

_putting(
    "notes_of_an_error",
    lambda: ValueError(1),
    lambda made, value: made.add_note("a"),
    lambda made: getattr(made, "__notes__", 0),
)
_putting(
    "cause_of_an_error",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "__cause__", KeyError(1)),
    lambda made: made.__cause__,
)
_putting(
    "context_of_an_error",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "__context__", KeyError(1)),
    lambda made: made.__context__,
)
_putting(
    "whether_a_context_is_shown",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "__suppress_context__", True),
    lambda made: made.__suppress_context__,
)
_putting(
    "arguments_of_an_error",
    lambda: ValueError(1),
    lambda made, value: setattr(made, "args", (2,)),
    lambda made: made.args,
)
_putting(
    "group_of_errors",
    lambda: ExceptionGroup("a", [ValueError(1)]),
    lambda made, value: made.exceptions[0].add_note("a"),
    lambda made: len(getattr(made.exceptions[0], "__notes__", ())),
)
_putting(
    "value_of_an_end", lambda: StopIteration(1), lambda made, value: setattr(made, "value", 2), lambda made: made.value
)
_putting(
    "name_of_a_missing_attribute",
    lambda: AttributeError("a"),
    lambda made, value: setattr(made, "name", "b"),
    lambda made: made.name,
)
_putting(
    "place_of_a_wrong_text",
    lambda: UnicodeDecodeError("a", b"b", 0, 1, "c"),
    lambda made, value: setattr(made, "start", 3),
    lambda made: made.start,
)
_putting(
    "file_of_an_error",
    lambda: OSError(1, "a", "b"),
    lambda made, value: setattr(made, "filename", "c"),
    lambda made: made.filename,
)
_putting("code_of_an_exit", lambda: SystemExit(1), lambda made, value: setattr(made, "code", 2), lambda made: made.code)
_putting(
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


# ------------------------------------------------------------------------------------- functions, classes


def _function() -> Any:
    kept = [0]

    def made(first: Any = 0, *, second: Any = 0) -> Any:
        return first, second, kept[0]

    return made


_putting(
    "default_of_a_function", _function, lambda made, value: setattr(made, "__defaults__", (value,)), lambda made: made()
)
_putting(
    "keyword_of_a_function",
    _function,
    lambda made, value: setattr(made, "__kwdefaults__", {"second": value}),
    lambda made: made(),
)
_putting(
    "keyword_in_its_dictionary",
    _function,
    lambda made, value: made.__kwdefaults__.update(second=value),
    lambda made: made(),
)
_putting(
    "code_of_a_function",
    lambda: lambda: 1,
    lambda made, value: setattr(made, "__code__", (lambda: 2).__code__),
    lambda made: made(),
)
_putting(
    "cell_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made.__closure__[0], "cell_contents", [value]),
    lambda made: made(),
)
_putting(
    "name_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made, "__name__", "other"),
    lambda made: made.__name__,
)
_putting(
    "module_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made, "__module__", "other"),
    lambda made: made.__module__,
)
_putting(
    "annotations_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made, "__annotations__", {"a": value}),
    lambda made: made.__annotations__.get("a"),
)
_putting(
    "name_of_a_class",
    lambda: type("Local", (), {}),
    lambda made, value: setattr(made, "__name__", "Other"),
    lambda made: made.__name__,
)
_putting(
    "long_name_of_a_class",
    lambda: type("Local", (), {}),
    lambda made, value: setattr(made, "__qualname__", "Other"),
    lambda made: made.__qualname__,
)
_putting(
    "module_of_a_class",
    lambda: type("Local", (), {}),
    lambda made, value: setattr(made, "__module__", "other"),
    lambda made: made.__module__,
)
_putting(
    "bases_of_a_class",
    lambda: type("Local", (type("First", (), {}),), {}),
    lambda made, value: setattr(made, "__bases__", (type("Second", (), {"kept": 1}),)),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "class_of_an_object",
    lambda: type("First", (), {})(),
    lambda made, value: setattr(made, "__class__", type("Second", (), {})),
    lambda made: type(made).__name__,
)
_putting(
    "dictionary_of_an_object",
    lambda: type("Local", (), {})(),
    lambda made, value: setattr(made, "__dict__", {"kept": value}),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "subclasses_of_a_class",
    lambda: (type("Local", (), {}), []),
    lambda made, value: made[1].append(type("Other", (made[0],), {})),
    lambda made: len(made[0].__subclasses__()),
)
_putting(
    "instances_that_a_metaclass_counts",
    lambda: type("Meta", (type,), {"made": []})("Local", (), {}),
    lambda made, value: type(made).made.append(value),
    lambda made: len(type(made).made),
)
_putting(
    "cache_of_a_function",
    lambda: functools.lru_cache(lambda number: [number]),
    lambda made, value: made(1).append(value),
    lambda made: made(1),
)
_putting(
    "cache_that_was_emptied",
    lambda: _filled(),
    lambda made, value: made.cache_clear(),
    lambda made: made.cache_info().currsize,
)
_putting(
    "property_that_is_cached",
    lambda: type("Local", (), {"kept": functools.cached_property(lambda self: [])})(),
    lambda made, value: made.__dict__.update(kept=[value]),
    lambda made: made.__dict__.get("kept"),
)
_putting(
    "dispatch_by_type",
    lambda: functools.singledispatch(lambda value: 0),
    lambda made, value: made.register(int, lambda value: 1),
    lambda made: made(1),
)
_putting(
    "partial",
    lambda: functools.partial(print, []),
    lambda made, value: made.args[0].append(value),
    lambda made: made.args[0],
)
_putting(
    "keywords_of_a_partial",
    lambda: functools.partial(print),
    lambda made, value: made.keywords.update(a=value),
    lambda made: dict(made.keywords),
)
_putting("method", lambda: [1].append, lambda made, value: made(value), lambda made: made.__self__)
_putting(
    "slot_of_a_list",
    lambda: type("Local", (list,), {"__slots__": ("kept",)})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "slot_of_a_dictionary",
    lambda: type("Local", (dict,), {"__slots__": ("kept",)})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "slot_of_an_error",
    lambda: type("Local", (ValueError,), {"__slots__": ("kept",)})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "slot_of_a_base",
    lambda: type("Local", (type("Base", (), {"__slots__": ("kept",)}),), {})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "number_that_is_a_member",
    lambda: enum.IntEnum("Colour", "RED").RED,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)  # type: ignore[attr-defined]
_putting(
    "text_that_is_a_member",
    lambda: enum.StrEnum("Colour", "RED").RED,
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)  # type: ignore[attr-defined]
_putting(
    "address",
    lambda: type("Local", (ipaddress.IPv4Address,), {})("1.2.3.4"),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "number_of_an_address",
    lambda: ipaddress.IPv4Address("1.2.3.4"),
    lambda made, value: setattr(made, "_ip", 7),
    lambda made: str(made),
)
_putting(
    "stack_of_exits",
    contextlib.ExitStack,
    lambda made, value: made.callback(print, value),
    lambda made: len(made._exit_callbacks),
)
_putting(
    "registry_of_numbers",
    lambda: type("Local", (abc.ABC,), {}),
    lambda made, value: made.register(Thing),
    lambda made: issubclass(Thing, made),
)
_putting(
    "zone_with_an_attribute",
    lambda: type("Zone", (datetime.tzinfo,), {})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)


def _filled() -> Any:
    made = functools.lru_cache(lambda number: number)
    made(1)
    return made


# ------------------------------------------------------------------------------------- weak references


@kind(lambda made, value: made[0].__setitem__("a", made[1]), lambda made: len(made[0]))
def table_of_weak_values() -> Any:
    return weakref.WeakValueDictionary(), Thing()


@kind(lambda made, value: made[0].__setitem__(made[1], value), lambda made: len(made[0]))
def table_of_weak_keys() -> Any:
    return weakref.WeakKeyDictionary(), Thing()


@kind(lambda made, value: made[0].add(made[1]), lambda made: len(made[0]))
def set_of_weak_members() -> Any:
    return weakref.WeakSet(), Thing()


@kind(lambda made, value: made.append(weakref.ref(made[0], lambda ref: value)), lambda made: len(made))
def callback_of_a_weak_reference() -> Any:
    return [Thing()]


@kind(lambda made, value: setattr(made[1](), "kept", value), lambda made: getattr(made[1](), "kept", 0))
def weak_method() -> Any:
    thing = Thing()
    return thing, weakref.ref(thing)


# ------------------------------------------------------------------------------------- logs


_putting(
    "logger_that_is_disabled",
    lambda: logging.Logger("a"),
    lambda made, value: setattr(made, "disabled", True),
    lambda made: made.disabled,
)
_putting(
    "logger_that_keeps_to_itself",
    lambda: logging.Logger("a"),
    lambda made, value: setattr(made, "propagate", False),
    lambda made: made.propagate,
)
_putting(
    "filter_of_a_logger",
    lambda: logging.Logger("a"),
    lambda made, value: made.addFilter(lambda record: True),
    lambda made: len(made.filters),
)
_putting(
    "record_of_a_log",
    lambda: logging.makeLogRecord({"created": 0, "msecs": 0, "relativeCreated": 0}),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
_putting(
    "adapter_of_a_logger",
    lambda: logging.LoggerAdapter(logging.Logger("a"), {}),
    lambda made, value: made.extra.update(a=value),
    lambda made: dict(made.extra),
)
_putting(
    "handler_of_a_stream",
    lambda: logging.StreamHandler(io.StringIO()),
    lambda made, value: made.stream.write("a"),
    lambda made: made.stream.getvalue(),
)
_putting(
    "buffer_of_a_handler",
    lambda: __import__("logging.handlers").handlers.MemoryHandler(9),
    lambda made, value: made.buffer.append(value),
    lambda made: len(made.buffer),
)


# ------------------------------------------------------------------------------------- what outlives the run


def counted(first: Any = 0, *, second: Any = 0) -> Any:
    """A function that its module names: what is put on it stays there."""
    return first, second


class Kept:
    """A class that its module names."""

    kept: Any = 0


class Members(enum.Enum):
    """An enumeration that its module names."""

    ONE = 1


@functools.cache
def remembered(number: int) -> list[int]:
    return [number]


def _counter() -> Callable[[], int]:
    number = 0

    def count(reset: bool = False) -> int:
        nonlocal number
        number = 0 if reset else number + 1
        return number

    return count


count = _counter()
numbers = itertools.count()
table: dict[str, Any] = {}
sieve = random.Random(1)


def _outliving(name: str, reset: Callable[[], object], put: Callable[[Any], object], look: Callable[[], Any]) -> None:
    KINDS[name] = (lambda: reset() and None, lambda made, value: put(value), lambda made: look())


def _set_numbers(start: int) -> None:
    global numbers
    numbers = itertools.count(start)


_outliving(
    "context_of_decimal_of_a_task",
    lambda: setattr(decimal.getcontext(), "prec", 28),
    lambda value: setattr(decimal.getcontext(), "prec", 7),
    lambda: decimal.getcontext().prec,
)
_outliving(
    "default_of_a_named_function",
    lambda: setattr(counted, "__defaults__", (0,)),
    lambda value: setattr(counted, "__defaults__", (value,)),
    lambda: counted(),
)
_outliving(
    "keyword_of_a_named_function",
    lambda: counted.__kwdefaults__.update(second=0),
    lambda value: counted.__kwdefaults__.update(second=value),
    lambda: counted(),
)
_outliving(
    "attribute_of_a_named_function",
    lambda: counted.__dict__.clear(),
    lambda value: setattr(counted, "kept", value),
    lambda: getattr(counted, "kept", 0),
)
_outliving(
    "attribute_of_a_named_class",
    lambda: setattr(Kept, "kept", 0),
    lambda value: setattr(Kept, "kept", value),
    lambda: Kept.kept,
)
_outliving(
    "attribute_of_a_named_member",
    lambda: setattr(Members.ONE, "kept", 0),
    lambda value: setattr(Members.ONE, "kept", value),
    lambda: Members.ONE.kept,
)  # type: ignore[attr-defined]
_outliving("cell_of_a_named_function", lambda: count(True), lambda value: count(), lambda: count())
_outliving("table_of_a_module", lambda: table.clear(), lambda value: table.update(a=value), lambda: dict(table))
_outliving("iterator_of_a_module", lambda: _set_numbers(0), lambda value: next(numbers), lambda: next(numbers))
_outliving(
    "cache_of_a_named_function",
    lambda: remembered.cache_clear(),
    lambda value: remembered(1),
    lambda: remembered.cache_info().currsize,
)
_outliving(
    "what_a_named_function_remembers",
    lambda: remembered(1).clear(),
    lambda value: remembered(1).append(1),
    lambda: list(remembered(1)),
)
_outliving("random_numbers_of_a_module", lambda: sieve.seed(1), lambda value: sieve.random(), lambda: sieve.random())
_outliving(
    "attribute_of_a_library",
    lambda: asyncio.__dict__.pop("kept", None),
    lambda value: setattr(asyncio, "kept", value),
    lambda: getattr(asyncio, "kept", 0),
)
_outliving(
    "attribute_of_a_class_of_a_library",
    lambda: hasattr(asyncio.Queue, "kept") and delattr(asyncio.Queue, "kept"),
    lambda value: setattr(asyncio.Queue, "kept", value),
    lambda: getattr(asyncio.Queue, "kept", 0),
)
_outliving(
    "level_of_a_named_logger",
    lambda: logging.getLogger("hidden").setLevel(0),
    lambda value: logging.getLogger("hidden").setLevel(30),
    lambda: logging.getLogger("hidden").level,
)
_outliving(
    "attribute_of_a_named_logger",
    lambda: setattr(logging.getLogger("hidden"), "kept", 0),
    lambda value: setattr(logging.getLogger("hidden"), "kept", value),
    lambda: logging.getLogger("hidden").kept,
)  # type: ignore[attr-defined]
_outliving(
    "name_of_a_level",
    lambda: logging.raiseExceptions,
    lambda value: setattr(logging, "raiseExceptions", False),
    lambda: (logging.raiseExceptions, setattr(logging, "raiseExceptions", True)),
)
