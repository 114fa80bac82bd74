"""The names of `impl.loaders` that others use, each written down once."""

from .dataset_identity import dataset_digest as dataset_digest
from .dataset_identity import same_dataset as same_dataset
from .permutation import EpochOrder as EpochOrder
from .torch_loader_state import decode_state as decode_state
from .torch_loader_state import encode_state as encode_state
