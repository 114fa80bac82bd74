"""The search over folded states: identical tasks are exchanged as one likes, and everything else stays as it was.

A state's choices have the names of the folded state. The way to a state is kept as the choices of the run that found
it, because those lead there again; the shortest way, which may end in an exchanged state, is worked out when a trace
is asked for. Every choice of a state is still a transition of its own, so paths are counted as if nothing was folded.
"""

from __future__ import annotations

from ..errors import Diverged, ExplorerUsageError
from ..runtime.identical import Identical
from ..runtime.run import Run, Target
from ..state.folding import canonical_options, difference, folded_fingerprint, standing_at_their_start
from .pruned import SHARED, Exploration, Search, State, in_order, refuse_late_sights
from .setting import look


class FoldedSearch(Search):
    """A search in which states that differ only in who is who are one."""

    _identical: Identical
    _checked = False
    _way: list[str]  # what the present run has done so far, by its own names
    _keys: dict[str, str]  # what is enabled in the present state: folded name -> the run's own

    def run(self) -> Exploration:
        """Search as ever; a complete search must have met every declared task."""
        found = super().run()
        if found.complete and found.failing is None:
            self._refuse_unmet()
        return found

    def keys_to(self, state: State) -> list[str]:
        """Return the shortest way by the names of a run that goes it."""
        keys: list[str] = []
        with self._setting.start() as run:
            run.observe()
            for name in state.path():
                _, naming = folded_fingerprint(run)
                key, target = canonical_options(run.options(), naming)[name]
                keys.append(key)
                run.step(target)
                run.observe()
        return keys

    def _root(self) -> State:
        with self._setting.start() as run:
            identical = run.loop.identical
            assert identical is not None
            self._identical = identical
            # Ranks follow the first meeting, so any member may be the main whose step resets the patience.
            self._main_keys = frozenset(main.step_key for main in run.mains)
            self._main_groups = tuple(
                f"task-step {identical.groups[place[0]][0]}~"
                for main in run.mains
                if (place := identical.place(main.label)) is not None
            )
            self._way = []
            state, _ = self._recognise(run, 0)
            return state

    def _is_main_step(self, via: str) -> bool:
        return via in self._main_keys or via.startswith(self._main_groups)

    def _replay(self, run: Run, state: State) -> dict[str, Target]:
        run.observe()
        self._way = list(state.way)
        for number, key in enumerate(state.way):
            target = run.options().get(key)
            if target is None:
                raise Diverged(number, key, (key,), tuple(run.options()))
            run.step(target)
            if run.observe() is not None:
                raise Diverged(number + 1, key, (key,), ("a violation that was not there before",))
        identity, naming = folded_fingerprint(run)
        if identity != state.identity:
            raise Diverged(len(state.way), "", (), (), f"the same choices lead to another state; {SHARED}")
        return self._named(run.options(), naming)

    def _named(self, options: dict[str, Target], naming: object) -> dict[str, Target]:
        named = canonical_options(options, naming)  # type: ignore[arg-type]
        self._keys = {name: key for name, (key, _) in named.items()}
        return {name: target for name, (_, target) in named.items()}

    def _advance(
        self, run: Run, state: State, index: int, options: dict[str, Target], number: int
    ) -> tuple[State, dict[str, Target]]:
        self._way.append(self._keys[state.options[index]])
        return super()._advance(run, state, index, options, number)

    def _recognise(self, run: Run, number: int) -> tuple[State, dict[str, Target]]:
        failure, options = look(run)
        refuse_late_sights(run)
        if failure is not None:
            return State((), failure, None), options
        if not self._checked:
            self._check(run)
        identity, naming = folded_fingerprint(run)
        named = self._named(options, naming)
        known = self._table.get(identity)
        if known is None:
            known = self._table[identity] = State(in_order(named), None, run.outcome, identity)
            known.way = tuple(self._way)
        else:
            self._compare(known, named, number)
        return known, named

    def _check(self, run: Run) -> None:
        """Compare the tasks in the first state where all of them stand at their start."""
        if standing_at_their_start(run, self._identical) is None:
            return
        self._checked = True
        told = difference(run, self._identical)
        if told is not None:
            raise ExplorerUsageError(f"identical=: {told}")

    def _refuse_unmet(self) -> None:
        members = [member for group in self._identical.groups for member in group]
        unmet = [member for member in members if member not in self._identical.seen]
        if unmet:
            raise ExplorerUsageError(f"identical= names {', '.join(unmet)}, which no schedule started")
        if not self._checked:
            raise ExplorerUsageError(
                "identical=: in no state did all of the tasks stand at their start, so they were never compared; "
                "start them in one step, or as the main coroutines of a Subject"
            )
