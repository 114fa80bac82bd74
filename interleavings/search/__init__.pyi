"""The names of `interleavings.search` that others use, each written down once."""

from .setting import Setting as Setting
from .setting import look as look
from .setting import paused_collection as paused_collection
