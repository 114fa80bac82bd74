"""The controller: both pumps of a run, its saves, and its resumption."""

from .callables import UserFunction as UserFunction
from .config import ControllerConfig, classify_failure
from .controller import Controller
from .generation import Generation as Generation
from .parts import RunParts as RunParts
from .progress import Progress as Progress
from .replacement import Replacement as Replacement
from .report import Failure, RestoredFrom, RunReport, SaveFailure
from .rollout_pump import RolloutPump as RolloutPump
from .saves import SaveFailures as SaveFailures
from .saves import SaveSchedule as SaveSchedule
from .saves import may_pass as may_pass
from .supervisor import RunTask as RunTask
from .supervisor import Supervisor as Supervisor
from .train_batch import GenerationRequest, TrainBatch, TrainGroup
from .train_pump import TrainPump as TrainPump
from .watchdog import Watchdog as Watchdog

__all__ = [
    "Controller",
    "ControllerConfig",
    "Failure",
    "GenerationRequest",
    "RestoredFrom",
    "RunReport",
    "SaveFailure",
    "TrainBatch",
    "TrainGroup",
    "classify_failure",
]
