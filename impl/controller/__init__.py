"""The controller: both pumps of a run, its saves, and its resumption."""

from .config import ControllerConfig, classify_failure
from .controller import Controller
from .report import Failure, RestoredFrom, RunReport, SaveFailure
from .train_batch import GenerationRequest, TrainBatch, TrainGroup

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
