"""The names of `interleavings.state` that others use, each written down once."""

from .fingerprint import reading_of as reading_of
from .walkers import Walk as Walk
