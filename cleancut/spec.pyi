"""What type checkers see of `cleancut.spec`: the public names of `spec`."""

from spec import *
