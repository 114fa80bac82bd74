"""What type checkers see of `cleancut.proofs`: the public names of `proofs`."""

from proofs import *
