"""The compiled engine: generated scalar code, JIT-compiled; exact, breadth first, for scopes of millions of states.

narrowing   the values each element can really take, so that what never changes costs nothing
packing     elements in bit fields of 64-bit words
placement   which shared expressions are worked out once, and where
source      the generated text
switching   several variants of one scope as one text
library     that text compiled and cached on disk, or interpreted
kept_code   compiled code on disk, looked at before it is executed
kernels     the table of states, the same code for every machine
storage     the arrays of a search, and their limit
expansion   a block of states expanded: what is new, and what breaks
team        the same by several threads, with the same result; team_kernels is their code
level_files a search put aside after a completed level
engine      the search itself, with the result type of the reference engine
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
