"""What type checkers see of `cleancut.impl`: the public names of `impl`."""

from impl import *
