"""Every error the library raises; the type says who is at fault.

    the caller        UsageError  BarrierReentered  StaleCut  ForeignCut  WrongLoop  WouldBlock
    a participant     DrainTimeout  BarrierClosed  RunStalled  LeaseExpired  HostUnreachable  GuardUnreachable
    the disk, the run CheckpointCorrupt  CheckpointDamaged  CheckpointIncompatible  CheckpointNotFound
                      StoreBusy  StoreOvertaken  StoreFailed  StoreFull  NameTaken  DurabilityUnknown
                      TraceUnreadable
    a writer          CommittedTensorModified
    us                InvariantViolated

A message says what happened, then the likely cause, then what to do. A refusal leaves the state unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a section of a barrier: task, kind, age in seconds and the place that opened it."""

    task: str | None
    kind: str
    age: float
    place: str
    exclusive: bool = False

    def __str__(self) -> str:
        task = "no task (a callback)" if self.task is None else f"task {self.task!r}"
        return f"{task}, kind {self.kind!r}, {self.age:.3f} s, opened at {self.place}"


class CleancutError(RuntimeError):
    """The base of all errors here. A RuntimeError, so that code written for barriers that raise that keeps working."""


class UsageError(CleancutError, ValueError):
    """An argument is wrong; the message names it."""


class BarrierReentered(CleancutError):
    """A context that holds a live section of a barrier opened another one of it. Nothing was changed."""


class StaleCut(CleancutError):
    """A cut was used after its section had ended, or before it began."""


class LeaseExpired(StaleCut):
    """A section of a holder in another process is over: no heartbeat came in time, or the barrier was started anew.

    What the section has not written by now it cannot write any more; open another one and look again.
    """


class ForeignCut(CleancutError):
    """A cut of another barrier, or of the shared side where the exclusive one is needed, was used."""


class WrongLoop(CleancutError):
    """The barrier was used outside the event loop that it belongs to."""


class WouldBlock(CleancutError):
    """The operation would have to wait, and the caller asked it not to."""


class DrainTimeout(CleancutError, TimeoutError):
    """The open sections did not end within the drain limit; the checkpoint was abandoned, the writers proceed.

    `holders` lists every section that was still open, oldest first.
    """

    def __init__(self, message: str, holders: tuple[Holder, ...] = ()) -> None:
        super().__init__(message)
        self.holders = holders


class BarrierClosed(CleancutError):
    """The barrier was closed; no section is opened any more."""


class HostUnreachable(CleancutError, ConnectionError):
    """The process that hosts the barrier does not answer, or is gone for good."""


class GuardUnreachable(CleancutError, ConnectionError):
    """A part in another process could not be told which tokens are void, so the cut was not opened."""


class RunStalled(CleancutError, TimeoutError):
    """Nothing moved for longer than the run's stall limit; the message says what everybody waits for."""


class CheckpointCorrupt(CleancutError):
    """A checkpoint on disk is damaged or contradicts itself."""


class CheckpointDamaged(CheckpointCorrupt):
    """The bytes on the disk are not those that were published: cut short, changed, missing, or not a file.

    The one kind of corruption after which a restore may take the checkpoint before: what was written was right.
    """


class CheckpointIncompatible(CleancutError):
    """A sound checkpoint belongs to another run: identity, capacity or format differ."""


class CheckpointNotFound(CleancutError):
    """There is no checkpoint where one was asked for."""


class StoreBusy(CleancutError):
    """Another writer owns the checkpoint directory."""


class StoreFailed(CleancutError):
    """The disk or the file system refused a call for another reason than room; the OSError is `__cause__`."""


class NameTaken(StoreFailed):
    """Somebody put a directory under the number of a save; it was left alone, and nothing was published."""


class DurabilityUnknown(StoreFailed):
    """The last fsync of a save failed after its rename: `checkpoint` is there, whole, and a power cut may take it.

    Every other error of a save says that nothing was published. The run does not count on the checkpoint; a restart
    that finds it takes it.
    """

    def __init__(self, message: str, checkpoint: str = "") -> None:
        super().__init__(message, checkpoint)  # both, so that it can be sent to another process
        self.checkpoint = checkpoint

    def __str__(self) -> str:
        return str(self.args[0])


class StoreOvertaken(StoreBusy, StoreFailed):
    """Another writer took the directory over while this one was saving, and put its attempt away.

    Also a StoreFailed, since it shows as a call that the file system refused; the OSError is below `__cause__`.
    """


class StoreFull(CleancutError):
    """The disk has no room for the checkpoint; the previous ones are untouched."""


class TraceUnreadable(CleancutError):
    """A line of a trace does not follow the schema. `path` and `line` (from 1) say where; line 0 is the whole file."""

    def __init__(self, message: str, path: str, line: int) -> None:
        super().__init__(message, path, line)  # all three, so that it can be sent to another process
        self.path = path
        self.line = line

    def __str__(self) -> str:
        return str(self.args[0])


class CommittedTensorModified(CleancutError):
    """A tensor changed after it was committed; the save that noticed it published nothing."""


class InvariantViolated(CleancutError):
    """A rule of the protocol was broken. A bug of this library, or a state that was put together by hand."""
