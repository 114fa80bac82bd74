"""The names of `impl.run` that others use, each written down once."""

from .accounts import CHUNK as CHUNK
from .pending_groups import GroupIndex as GroupIndex
from .pending_groups import PendingGroups as PendingGroups
from .permits import PermitPool as PermitPool
