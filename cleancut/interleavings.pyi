"""What type checkers see of `cleancut.interleavings`: the public names of `interleavings`."""

from interleavings import *
