"""The names of `impl.rows` that others use, each written down once."""

from .device import Device as Device
from .pinned_pool import Lease as Lease
from .pinned_pool import PinnedPool as PinnedPool
from .plane import RowsWriter as RowsWriter
from .tensor_plane import STAGING_BYTES as STAGING_BYTES
from .tensor_plane import Record as Record
from .torch_cuda_device import CudaDevice as CudaDevice
from .torch_cuda_device import current_streams as current_streams
from .torch_cuda_device import done_on as done_on
from .torch_immutability import is_tracked as is_tracked
from .torch_readiness import cloned as cloned
from .torch_staging import RowsFile as RowsFile
from .torch_staging import staged_files as staged_files
