"""How `impl` refines `spec`: the page where it stands what an event means and what is compared.

**Events.** Every action of `impl` emits an event of its own name in the stretch of code that changes the state. For the
machine that declares the action it must be enabled; events of the other machine are ignored by name, never by default.
`vocabulary` lists all of them, and the events that move nothing with the reason of each.

**State.** After every step the aspects below must be equal in the machine's state and in the implementation. A machine
variable is either compared, or it is history that no implementation keeps, listed here with the reason:

barrier   compared: who waits, who is inside, the queue of checkpoints, the open cut
          history: `rounds_left`, `late`, `passed_over` (what was asked before); `cancellations_left`,
          `expiries_left` (budgets); whether a checkpoint outside the queue is idle or done
          `silences_left`, `passed_by`, `late_write`; `lease` (who is silent nobody knows: it moves by the events)
cut       compared: cursor, epoch and exhausted bit, dispatch cursor, shortfalls, drop count, ledger, slots, spares,
          accounts, stamps, weights where a rule looks at them, version, permits, open window; and at publication the
          whole image, against the real files: its kind and the names of anchor and parent, permits, admissions,
          failures of pending groups, reasons of drops, and the counter of group ids besides
          history: `gate_passed`, `lingering`, `trouble`, `columns` (where a task stands in its code); `tries` (the
          library keeps two budgets and forgets both with the commit); `lease`, `silences_left`
          (off in what is followed: the explorer has one process); `generations` (a permit is in a task's hands
          before its slot and after it); `anchor` (a version; of a snapshot on disk its name is compared);
          `saves_left` and the other budgets; the image while it is read, since no step of the implementation ends
          in between

**Names.** The machine numbers prompts in the order in which the loader hands them out, and takes groups of one age in
that order. The library takes them in the order of their arrival. Two ready groups of which the machine knows nothing
different are the same up to their numbers, so where the two choose differently among such, the numbers change hands
(`Prompts.swap`); groups that differ are never swapped.

| file | what it says |
|---|---|
| `vocabulary.py` | every event, and the named stutters |
| `barrier.py` | the barrier's events and state |
| `cut.py`, `choices.py` | the protocol's events, and which groups a choice of the library stands for |
| `views.py`, `images.py` | the run's state, and its checkpoints, in the machine's words |
| `words.py` | the machine's own words on an action and a state, for the report of a failure |
| `prompts.py` | the machine's number of each group and key |
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
