"""The production library: one atomic cut for the checkpoint of an asynchronous RL training run.

Public names are those of `__all__`, of `impl.nemo`, `impl.ray` and `impl.trio`; everything else may change. Importing
this package imports the barrier, the ledger and the loader, which need the standard library alone. The other names are
loaded at their first use, so that nobody who wants a barrier waits for torch. `impl.nemo`, `impl.ray` and `impl.trio`
are imported by these names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .accounts import Accounts, AccountsSnapshot, Interval
from .barrier import UNSET, BarrierStatistics, CheckpointBarrier, Cut, Durations, Tracer, Waits
from .errors import (
    BarrierClosed,
    BarrierReentered,
    CheckpointCorrupt,
    CheckpointDamaged,
    CheckpointIncompatible,
    CheckpointNotFound,
    CleancutError,
    CommittedTensorModified,
    DrainTimeout,
    DurabilityUnknown,
    ForeignCut,
    GuardUnreachable,
    Holder,
    HostUnreachable,
    InvariantViolated,
    LeaseExpired,
    NameTaken,
    RunStalled,
    StaleCut,
    StoreBusy,
    StoreFailed,
    StoreFull,
    StoreOvertaken,
    TraceUnreadable,
    UsageError,
    WouldBlock,
    WrongLoop,
)
from .keys import GroupId, Key
from .ledger import Admission, Ledger, LedgerSnapshot
from .loader import Batch, LoaderState, PromptLoader
from .pending_groups import LedgerEntry, Phase

if TYPE_CHECKING:
    from .buffer import ReplayBuffer
    from .checkpointer import (
        Checkpointer,
        CheckpointInfo,
        Counters,
        HeldCounters,
        PendingSave,
        Restored,
        SnapshotSkipped,
    )
    from .controller import (
        Controller,
        ControllerConfig,
        Failure,
        GenerationRequest,
        RestoredFrom,
        RunReport,
        SaveFailure,
        TrainBatch,
        TrainGroup,
    )
    from .loader_protocol import Loader
    from .permits import Permit
    from .plane import DataPlane, RowsBehind
    from .samplers import (
        InOrderSampler,
        ReadyFirstSampler,
        Sampler,
        TransactionalSampler,
        WeightFifoSampler,
        WindowedSampler,
    )
    from .slots import BufferSnapshot, Claim, Slot
    from .spare_pool import Spare, SparePool
    from .tensor_plane import TensorPlane
    from .torch_trainer_state import TorchTrainerState
    from .torchdata_loader import Indexed, TorchdataPromptLoader
    from .torchdata_state import TorchdataLoaderState
    from .tracing import JsonlTracer, read_trace
    from .trainer_state import TrainerState

_LOADED_AT_FIRST_USE = {
    "ReplayBuffer": "buffer",
    "CheckpointInfo": "checkpointer",
    "Checkpointer": "checkpointer",
    "Counters": "checkpointer",
    "HeldCounters": "checkpointer",
    "PendingSave": "checkpointer",
    "Restored": "checkpointer",
    "SnapshotSkipped": "checkpointer",
    "Controller": "controller",
    "ControllerConfig": "controller",
    "Failure": "controller",
    "GenerationRequest": "controller",
    "RestoredFrom": "controller",
    "RunReport": "controller",
    "SaveFailure": "controller",
    "TrainBatch": "controller",
    "TrainGroup": "controller",
    "Loader": "loader_protocol",
    "Permit": "permits",
    "DataPlane": "plane",
    "RowsBehind": "plane",
    "InOrderSampler": "samplers",
    "ReadyFirstSampler": "samplers",
    "Sampler": "samplers",
    "TransactionalSampler": "samplers",
    "WeightFifoSampler": "samplers",
    "WindowedSampler": "samplers",
    "BufferSnapshot": "slots",
    "Claim": "slots",
    "Slot": "slots",
    "Spare": "spare_pool",
    "SparePool": "spare_pool",
    "TensorPlane": "tensor_plane",
    "TorchTrainerState": "torch_trainer_state",
    "Indexed": "torchdata_loader",
    "TorchdataLoaderState": "torchdata_state",
    "TorchdataPromptLoader": "torchdata_loader",
    "JsonlTracer": "tracing",
    "read_trace": "tracing",
    "TrainerState": "trainer_state",
}

__all__ = [
    "UNSET",
    "Accounts",
    "AccountsSnapshot",
    "Admission",
    "BarrierClosed",
    "BarrierReentered",
    "BarrierStatistics",
    "Batch",
    "BufferSnapshot",
    "CheckpointBarrier",
    "CheckpointCorrupt",
    "CheckpointDamaged",
    "CheckpointIncompatible",
    "CheckpointInfo",
    "CheckpointNotFound",
    "Checkpointer",
    "Claim",
    "CleancutError",
    "CommittedTensorModified",
    "Controller",
    "ControllerConfig",
    "Counters",
    "Cut",
    "DataPlane",
    "DrainTimeout",
    "DurabilityUnknown",
    "Durations",
    "Failure",
    "ForeignCut",
    "GenerationRequest",
    "GroupId",
    "GuardUnreachable",
    "HeldCounters",
    "Holder",
    "HostUnreachable",
    "InOrderSampler",
    "Indexed",
    "Interval",
    "InvariantViolated",
    "JsonlTracer",
    "Key",
    "LeaseExpired",
    "Ledger",
    "LedgerEntry",
    "LedgerSnapshot",
    "Loader",
    "LoaderState",
    "NameTaken",
    "PendingSave",
    "Permit",
    "Phase",
    "PromptLoader",
    "ReadyFirstSampler",
    "ReplayBuffer",
    "Restored",
    "RestoredFrom",
    "RowsBehind",
    "RunReport",
    "RunStalled",
    "Sampler",
    "SaveFailure",
    "Slot",
    "SnapshotSkipped",
    "Spare",
    "SparePool",
    "StaleCut",
    "StoreBusy",
    "StoreFailed",
    "StoreFull",
    "StoreOvertaken",
    "TensorPlane",
    "TorchTrainerState",
    "TorchdataLoaderState",
    "TorchdataPromptLoader",
    "TraceUnreadable",
    "Tracer",
    "TrainBatch",
    "TrainGroup",
    "TrainerState",
    "TransactionalSampler",
    "UsageError",
    "Waits",
    "WeightFifoSampler",
    "WindowedSampler",
    "WouldBlock",
    "WrongLoop",
    "read_trace",
]


def __getattr__(name: str) -> object:
    module = _LOADED_AT_FIRST_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as fault:
        from cleancut_leaf.extras import with_its_extra

        raise with_its_extra(fault, f"{__name__}.{name}") from fault
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
