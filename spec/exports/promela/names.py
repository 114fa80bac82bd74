"""The names of a machine as Promela knows them: its variables, and what their values are called.

A variable and an action keep the machine's name. A value that people call `no slot` becomes the symbol NO_SLOT; where
two variables give one name to different values, the symbol carries the name of the variable: WINDOW_OPEN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...language.machine import Variable

# The words of Promela, what the text itself defines, and what the verifier that Spin generates has for itself.
_WORDS = """
accept active always assert atomic bit bool break byte c_code c_decl c_expr c_state c_track chan d_step
d_proctype do else empty enabled end equivalent eval eventually false fi for full get_priority goto hidden
if implies in init inline int len local ltl mtype nempty never next nfull nil np_ notrace od of pc_value pid
printf printm priority proctype progress provided release return run select set_priority short show skip
stronguntil timeout trace true typedef unless unsigned until weakuntil xr xs
aside finished nothing rank rank_before violated
depth main now state states trans trpt
"""
_TAKEN = frozenset(_WORDS.split())


def identifier(name: str) -> str:
    """A machine's name where Promela allows it, with an underscore behind it where the word is taken."""
    return f"{name}_" if name in _TAKEN else name


def _symbol(words: str) -> str:
    return re.sub(r"\W+", "_", words).strip("_").upper()


class ValueNames:
    """What the values of each variable are called; a value without a name, or without a free one, is a number."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        named = [(v, value, _symbol(words)) for v in variables for value, words in v.names.items()]
        meanings: dict[str, set[int]] = {}
        for _, value, symbol in named:
            meanings.setdefault(symbol, set()).add(value)
        taken = {variable.name for variable, _, _ in named}
        self._symbols: dict[tuple[str, int], str] = {}
        self._values: dict[str, int] = {}
        for variable, value, symbol in named:
            chosen = symbol if len(meanings[symbol]) == 1 else f"{variable.name.upper()}_{symbol}"
            free = chosen not in taken and self._values.get(chosen, value) == value
            if free and chosen.isidentifier() and chosen.isascii():
                self._symbols[variable.name, value] = chosen
                self._values[chosen] = value

    def called(self, variable: str | None, value: int) -> str:
        """A value as the text writes it where it is compared with, or assigned to, that variable."""
        return self._symbols.get((variable, value), str(value)) if variable is not None else str(value)

    def definitions(self) -> list[str]:
        """One `#define` a symbol, in the order of the variables."""
        return [f"#define {symbol} {value}" for symbol, value in self._values.items()]
