"""A loader over torchdata's `StatefulDataLoader`, for datasets that want worker processes, or a sampler of their own.

    dataloader = StatefulDataLoader(Indexed(dataset), batch_size=16, shuffle=True, num_workers=2, collate_fn=list)
    loader = TorchdataPromptLoader(dataloader, batch_size=4, seed=0)

The dataloader draws batches of its own size; they are regrouped to the run's, and what is left over is part of the
state: after a restore it comes first, and the dataloader goes on behind it. Where torchdata (0.11) is known to lose its
place this file does not ask it: the end of an epoch is counted here, since a state taken after the last batch and
before `StopIteration` gives an empty epoch, and a dataset of another length is refused before it ends early.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import Dataset as MapDataset
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped, unused-ignore]

from cleancut_leaf.words import counted

from ..arguments import require_count, require_cut, require_integer, require_kind
from ..errors import CheckpointIncompatible, UsageError
from ..keys import Key
from .dataset_identity import Dataset, dataset_digest
from .prompt_loader import Batch, row_of
from .torch_loader_state import decode_state, encode_state
from .torchdata_state import TorchdataLoaderState, check_place

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..barrier.cut import Named


T = TypeVar("T")


class Indexed(MapDataset[tuple[int, Any]]):
    """A map-style dataset whose rows say which they are: `(index, prompt)`. Give it to the dataloader."""

    def __init__(self, rows: Dataset) -> None:
        if not hasattr(rows, "__len__") or not hasattr(rows, "__getitem__"):
            raise UsageError(
                f"rows is a {type(rows).__name__}, but must have a length and rows by number: only then can a restore "
                "find its place. Put an iterable dataset into a list first."
            )
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, self.rows[index]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One batch of the dataloader, and where that leaves it."""

    rows: tuple[tuple[int, Any], ...]
    dataloader: str | None


class TorchdataPromptLoader:
    """Satisfies `Loader`: what `PromptLoader` is, with a `StatefulDataLoader` in it.

    Keys are (epoch, row of the dataset). `seed` decides the order of every epoch: the generators of dataloader and
    sampler are set from it and the epoch's number, so that a later epoch is the same after a restart. No batch spans
    two epochs; the last one of an epoch may be short. A Controller awaits `prepare` before it opens a section, which
    reads in a thread; without, `next_batch` reads where it is called. Each epoch starts its own worker processes, also
    with persistent_workers, so that its order does not depend on the epochs before. That order may differ with the
    number of workers, which is therefore part of what a resumed run must have in common with the saved one.
    """

    def __init__(
        self,
        dataloader: StatefulDataLoader[Any],
        batch_size: int,
        seed: int,
        epochs: int = 1,
        *,
        fingerprint: str | None = None,
    ) -> None:
        self._dataset = _indexed(dataloader)
        _refuse_repetition(dataloader)
        self.batch_size = require_count("batch_size", batch_size, least=1)
        self.epochs = require_count("epochs", epochs, least=1)
        require_integer("seed", seed)
        self._dataloader = dataloader
        self._own_batches = _length(dataloader)
        self._barrier: Named | None = None
        self._iterator: Iterator[Any] | None = None
        self._drawing: asyncio.Future[_Drawn] | None = None
        # Invariant: the rows of `_leftover` are those of the state, in order.
        self._leftover: deque[tuple[int, Any]] = deque()
        self._state = TorchdataLoaderState(
            epoch=0,
            own_batches=0,
            leftover=(),
            exhausted=False,
            dataloader=None,
            seed=seed,
            batch_size=batch_size,
            dataset_length=len(self._dataset),
            dataset_digest=dataset_digest(self._dataset.rows, fingerprint),
            own_batch_size=getattr(dataloader.batch_sampler, "batch_size", None),
            workers=dataloader.num_workers,
        )

    @property
    def exhausted(self) -> bool:
        """The last batch of the last epoch was handed out."""
        return self._state.exhausted

    @property
    def epoch(self) -> int:
        """The epoch of the next batch; of the last one, when exhausted."""
        return self._state.epoch

    async def prepare(self) -> None:
        """Read ahead, in a thread, until the next batch can be handed out without waiting. Outside any section.

        A cancelled call loses nothing: what the thread reads is taken down when it is there.
        """
        while not self._enough(self.batch_size):
            if self._drawing is None:
                self._drawing = _in_own_thread(self._draw)
                self._drawing.add_done_callback(self._take_drawn)
            await asyncio.shield(self._drawing)

    def next_batch(self, cut: Cut, limit: int | None = None) -> Batch | None:
        """The next batch, or None at the end of the data; with `limit`, at most so many prompts, the rest come next.

        A row that cannot be read raises its error, and is read again by the next call.
        """
        self._require(cut)
        if limit is not None:
            require_count("limit", limit, least=1)
        if self._state.exhausted:
            return None
        self._require_still("next_batch")
        size = self.batch_size if limit is None else min(limit, self.batch_size)
        while not self._enough(size):
            self._note(self._draw())
        taken = [self._leftover.popleft() for _ in range(min(size, len(self._leftover)))]
        epoch = self._state.epoch
        ends_epoch = not self._leftover and self._state.own_batches == self._own_batches
        self._state = self._after(replace(self._state, leftover=self._state.leftover[len(taken) :]))
        return Batch(tuple(Key(epoch, index) for index, _ in taken), tuple(row for _, row in taken), ends_epoch)

    def payload(self, key: Key) -> Any:
        """The prompt of a key, read from the dataset again, in this process."""
        return self._dataset.rows[row_of(key, len(self._dataset))]

    def close(self) -> None:
        """Let the worker processes go. A later batch starts new ones at the same place."""
        self._require_still("close")
        self._iterator = None
        self._dataloader.load_state_dict({})

    # -- checkpoints

    def state(self) -> TorchdataLoaderState:
        """Where the loader is; immutable, and no work."""
        return self._state

    def check_state(self, state: TorchdataLoaderState) -> None:
        """Raise, and change nothing, unless `load_state` would take this state.

        CheckpointIncompatible when it is of another loader, naming each difference; CheckpointCorrupt when no loader
        can be at that place.
        """
        require_kind("state", state, TorchdataLoaderState, "a TorchdataLoaderState, as `state` returned it")
        check_place(state, self._state, self._own_batches, self.epochs)

    def load_state(self, state: TorchdataLoaderState, cut: Cut | None = None) -> None:
        """Continue at a saved place; leftover rows are read again. What was exhausted goes on if there are more epochs.

        The dataloader itself is set back when it is next asked for a batch. A refusal changes nothing.
        """
        if cut is not None:
            self._require(cut, exclusive=True)
        self._require_still("load_state")
        self.check_state(state)
        leftover = deque((index, self._dataset.rows[index]) for index in state.leftover)
        self._iterator = None
        self._leftover = leftover
        # The digest is of the dataset that is here; an earlier version may have taken it in another form.
        mine = replace(state, exhausted=False, dataset_digest=self._state.dataset_digest)
        self._state = self._after(mine)

    # -- drawing

    def _enough(self, size: int) -> bool:
        state = self._state
        return state.exhausted or len(self._leftover) >= size or state.own_batches == self._own_batches

    def _draw(self) -> _Drawn:
        """The dataloader's next batch; changes nothing but the dataloader. Any thread, one call at a time.

        After an error the dataloader has moved on, so it is set back to where the state says.
        """
        try:
            if self._iterator is None:
                self._iterator = self._started()
            drawn = self._state.own_batches + 1
            try:
                rows = self._checked(next(self._iterator))
            except StopIteration:
                raise UsageError(
                    f"dataloader: its epoch ended after {drawn - 1} of "
                    f"{counted(self._own_batches, 'batch', 'batches')}. Its sampler is shorter than it says; without "
                    "its true length the end of the data cannot be told from a loss."
                ) from None
            if drawn < self._own_batches:
                return _Drawn(rows, encode_state(self._dataloader.state_dict(), "dataloader.state_dict()"))
            self._require_end(self._iterator)
            self._iterator = None
            return _Drawn(rows, None)
        except BaseException:
            self._iterator = None
            raise

    def _started(self) -> Iterator[Any]:
        state = self._state
        self._seed_epoch(state.epoch)
        saved = {} if state.dataloader is None else decode_state(state.dataloader, "the dataloader's state")
        self._dataloader.load_state_dict(saved)
        try:
            return iter(self._dataloader)
        except (AssertionError, KeyError, StopIteration) as error:
            raise CheckpointIncompatible(
                f"the dataloader does not take its saved state: {error!r}. It was made with other arguments than at "
                "the save (sampler, workers), or by another version of torchdata; make it as it was."
            ) from error

    def _seed_epoch(self, epoch: int) -> None:
        digest = sha256(f"{self._state.seed}/{epoch}".encode()).digest()
        number = int.from_bytes(digest[:8], "little") >> 1
        sampler = self._dataloader.sampler
        for generator in (self._dataloader.generator, getattr(sampler, "generator", None)):
            if generator is not None:
                generator.manual_seed(number)
        set_epoch = getattr(sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)

    def _require_end(self, iterator: Iterator[Any]) -> None:
        # Also lets the worker processes end.
        if next(iterator, _END) is not _END:
            raise UsageError(
                f"dataloader: it has more batches than the {self._own_batches} of its length, so the end of an epoch "
                "is not where it says. Give it a sampler with the right length."
            )

    def _checked(self, batch: object) -> tuple[tuple[int, Any], ...]:
        """The rows of a batch as pairs of index and prompt; UsageError if it cannot be told which rows they are."""
        rows = tuple(batch) if isinstance(batch, list | tuple) else ()
        good = rows and all(
            isinstance(row, tuple) and len(row) == 2 and type(row[0]) is int and 0 <= row[0] < len(self._dataset)
            for row in rows
        )
        if not good:
            raise UsageError(
                f"dataloader: a batch of it is {_described(batch)}, but must be a list of (index, prompt) pairs, one "
                "for each row. Make it with collate_fn=list over Indexed(dataset); tensors are made later, by generate."
            )
        indices = [index for index, _ in rows]
        if len(set(indices)) != len(indices):
            raise UsageError(
                f"dataloader: one batch holds a row twice ({sorted(indices)}). Its sampler draws with repetition; a "
                "prompt is trained once an epoch, so give it one that does not."
            )
        return rows

    def _take_drawn(self, drawing: asyncio.Future[_Drawn]) -> None:
        """Runs before whoever awaits the drawing, and also when nobody does any more."""
        self._drawing = None
        if not drawing.cancelled() and drawing.exception() is None:
            self._note(drawing.result())

    def _note(self, drawn: _Drawn) -> None:
        self._leftover.extend(drawn.rows)
        self._state = replace(
            self._state,
            own_batches=self._state.own_batches + 1,
            leftover=(*self._state.leftover, *(index for index, _ in drawn.rows)),
            dataloader=drawn.dataloader,
        )

    def _after(self, state: TorchdataLoaderState) -> TorchdataLoaderState:
        """`state`, or at the end of its epoch the beginning of the next, or the end."""
        if state.own_batches < self._own_batches or state.leftover:
            return state
        if state.epoch + 1 < self.epochs:
            return replace(state, epoch=state.epoch + 1, own_batches=0)
        return replace(state, exhausted=True)

    def _require_still(self, what: str) -> None:
        if self._drawing is not None:
            raise UsageError(f"{what} was called while prepare() reads a batch. Await prepare() first.")

    def _require(self, cut: Cut, exclusive: bool = False) -> None:
        require_cut(cut, self._barrier, exclusive)
        self._barrier = cut.barrier


_END = object()


def _indexed(dataloader: object) -> Indexed:
    if not isinstance(dataloader, StatefulDataLoader):
        raise UsageError(
            f"dataloader is a {type(dataloader).__name__}, but must be a torchdata StatefulDataLoader, which can be "
            "set back to a place. For a dataset alone use PromptLoader."
        )
    dataset = dataloader.dataset
    if not isinstance(dataset, Indexed):
        raise UsageError(
            f"dataloader: its dataset is a {type(dataset).__name__}, and a batch of it does not say which rows it "
            "holds. Make the dataloader over Indexed(dataset), with collate_fn=list."
        )
    if len(dataset) == 0:
        raise UsageError("dataloader: its dataset is empty; give at least one prompt.")
    return dataset


def _refuse_repetition(dataloader: StatefulDataLoader[Any]) -> None:
    if getattr(dataloader.sampler, "replacement", False):
        raise UsageError(
            "dataloader: its sampler draws with replacement. A prompt is trained once an epoch; give it a sampler that "
            "draws each row at most once."
        )
    if dataloader.num_workers > 0 and not getattr(dataloader, "in_order", True):
        raise UsageError(
            "dataloader: in_order is False, and torchdata cannot be set back to a place then. Leave it True."
        )


def _length(dataloader: StatefulDataLoader[Any]) -> int:
    try:
        length = len(dataloader)
    except TypeError as error:
        raise UsageError(
            f"dataloader: it has no length ({error}), so the end of an epoch cannot be told. Give it a sampler that "
            "has one."
        ) from error
    if length < 1:
        raise UsageError("dataloader: an epoch of it has no batch (drop_last with a dataset smaller than a batch?).")
    return length


def _described(batch: object) -> str:
    if isinstance(batch, list | tuple) and batch:
        return f"a {type(batch).__name__} of {len(batch)}, the first a {type(batch[0]).__name__}: {batch[0]!r:.80}"
    return f"a {type(batch).__name__}: {batch!r:.80}"


def _in_own_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a thread that belongs to no executor; a future of the running loop.

    torchdata forks its workers in the thread that asks for a batch. A process that is forked from an executor's thread
    fails at its end: the interpreter waits for all threads of executors, so for the one that is left. The thread is a
    daemon: it keeps no program from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            result = work()
        except BaseException as error:
            settle = functools.partial(future.set_exception, error)
        else:
            settle = functools.partial(future.set_result, result)
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle())

    threading.Thread(target=run, name="cleancut-data", daemon=True).start()
    return future
