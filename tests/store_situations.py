"""Situations for tests of the store: small checkpoints, and layers under it that record, fail or die at one call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

from impl.store import (
    CheckpointStore,
    Count,
    Draft,
    Files,
    Handle,
    Identity,
    Kind,
    PosixFiles,
    Published,
    SamplerIdentity,
    StagedDirectory,
    WriterIdentity,
)

IDENTITY = Identity(
    dataset_length=8,
    dataset_digest="d" * 64,
    seed=1,
    batch_size=2,
    generations=None,
    sampler=SamplerIdentity("in_order", {"lookahead": 1}),
)

#: The calls of `Files`.
CALLS = frozenset(name for name in vars(Files) if not name.startswith("_"))


class Died(BaseException):
    """The process is gone: no handler of the code under test may do anything after it."""


class LayeredFiles:
    """Passes every call on to real files, after `before` and before `after` have seen its number, name and arguments.

    Numbers count from 0. What the two raise takes the place of the call's outcome.
    """

    def __init__(
        self,
        before: Callable[[int, str, tuple[Any, ...]], None] = lambda number, call, arguments: None,
        after: Callable[[int, str, tuple[Any, ...]], None] = lambda number, call, arguments: None,
    ) -> None:
        self._real = PosixFiles()
        self._before = before
        self._after = after
        self._numbers = count()
        # Invariant: the handles that are open, as the operating system would know them.
        self._handles: set[Handle] = set()
        self._dead = False

    def __getattr__(self, call: str) -> Callable[..., Any]:
        if call not in CALLS:
            raise AttributeError(call)

        def layered(*arguments: Any) -> Any:
            if self._dead and call == "unlock":
                return None  # the end of the process has given it back
            number = next(self._numbers)
            try:
                self._before(number, call, arguments)
                outcome = getattr(self._real, call)(*arguments)
                if call in ("open_new", "open_read", "lock"):
                    self._handles.add(outcome)
                elif call in ("close", "unlock"):
                    self._handles.discard(arguments[0])
                self._after(number, call, arguments)
            except Died:
                self._close_all()
                raise
            return outcome

        return layered

    def _close_all(self) -> None:
        """What the end of a process does, whatever its code would have done."""
        self._dead = True
        while self._handles:
            self._real.close(self._handles.pop())


def recording_files() -> tuple[Files, list[tuple[str, tuple[Any, ...]]]]:
    """Files, and the list to which they add each call."""
    calls: list[tuple[str, tuple[Any, ...]]] = []
    return cast(Files, LayeredFiles(before=lambda _, call, arguments: calls.append((call, arguments)))), calls


def dying_files(at: int, *, effect: bool) -> Files:
    """Files of a process that dies in call `at`: before its effect, or after it. Every later call dies as well."""

    def die(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if number >= at:
            raise Died(f"in call {number}, {call}{arguments!r:.80}")

    def die_after(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if number == at:
            die(number, call, arguments)

    def die_before(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if number >= at + effect:
            die(number, call, arguments)

    return cast(Files, LayeredFiles(before=die_before, after=die_after) if effect else LayeredFiles(before=die_before))


def failing_files(
    error: int, *, call: str, nth: int, lasting: bool = False, calls: list[tuple[str, tuple[Any, ...]]] | None = None
) -> Files:
    """Files whose `nth` call of one kind (from 0) fails with an errno; with `lasting` all later ones of it fail too.

    `calls` is given each call that comes after the first failure.
    """
    seen = count()
    failed = False

    def fail(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal failed
        if failed and calls is not None:
            calls.append((name, arguments))
        if name == call:
            place = next(seen)
            if place == nth or (lasting and place > nth):
                failed = True
                raise OSError(error, f"injected into {call} {place}")

    return cast(Files, LayeredFiles(before=fail))


def writer_identity(name: str = "a") -> WriterIdentity:
    """A writer whose tokens repeat from run to run."""
    tokens = count()
    return WriterIdentity(f"writer {name}", lambda: f"{name}{next(tokens)}")


def new_store(root: Path, files: Files | None = None, keep: int = 3, name: str = "a") -> CheckpointStore:
    """A store on a directory, not open yet."""
    return CheckpointStore(str(root), files or PosixFiles(), keep, writer_identity(name))


@contextmanager
def open_store(root: Path, files: Files | None = None, keep: int = 3, name: str = "a") -> Iterator[CheckpointStore]:
    """A store that is open inside the block."""
    store = new_store(root, files, keep, name)
    store.open()
    try:
        yield store
    finally:
        store.close()


def fill_with(text: str) -> Callable[[StagedDirectory], dict[str, Count]]:
    """Writes two files, one in a directory of its own, from which `text_of` can tell which save it was."""

    def fill(staged: StagedDirectory) -> dict[str, Count]:
        staged.writer().write_json("words.json", {"text": text})
        staged.writer("trainer").write_bytes("weights.bin", text.encode() * 100)
        return {"words": Count(1, "texts")}

    return fill


def publish(
    store: CheckpointStore, step: int, text: str | None = None, kind: Kind = "full", anchor: str | None = None
) -> Published:
    """Publish a small checkpoint."""
    draft = Draft(step, store.take_sequence(), kind, None, anchor, IDENTITY)
    return store.publish(draft, fill_with(f"step {step}" if text is None else text))


def text_of(root: Path, name: str) -> str:
    """What a checkpoint written by `publish` holds, after everything in it was verified."""
    reader = new_store(root).reader(name)
    reader.verify()
    document = reader.reader().read_json("words.json")
    assert isinstance(document, dict)
    text = document["text"]
    assert isinstance(text, str)
    assert reader.reader("trainer").read_bytes("weights.bin") == text.encode() * 100
    return text


def valid_texts(root: Path) -> list[str]:
    """What the checkpoints in a directory hold, the newest first; none of them may be damaged."""
    return [text_of(root, candidate.name) for candidate in new_store(root).catalogue().candidates]
