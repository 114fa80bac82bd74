"""Holds the trace of a production run against the machines of `spec`, event by event, in memory that does not grow.

A trace says how many prompts a batch has and nothing of how many there will be, so no scope is named and nothing is
enumerated: the machine's own actions are called on one state, which is as large as what is alive at that moment
(`open_state.py`). Prompts that are trained or dropped leave the state; a step of the trainer is kept while its groups
are on their way.

| file | idea |
|---|---|
| `open_state.py` | a state of a machine that grows and shrinks, and takes the actions of the machine's text |
| `live_prompts.py` | which prompts, groups and keys are in it, and at which place |
| `sections.py` | the barrier machine, followed over the sections that are open or wait |
| `protocol.py`, `filling.py` | the cut machine: what an event means, and that it moved what the machine moves |
| `saves.py`, `restores.py` | the window and publication; a new process that goes on from a checkpoint |
| `succession.py` | the processes of each run in their order, and the checkpoints they may go on from |
| `validating.py` | the lines of a trace, its segments, gaps and ends; the verdict |

What an event's action may do is never written here a second time: guard and effects are the machine's. Where a run may
do more than the machine, which has no word for it, that is said where it is allowed:

- spares are diverted into a pool that has some (how many are enough is a policy);
- among ready groups of one age and stamp any may be taken first (the order of arrival is no part of the machine);
- a group that failed may be tried again or given up at any time (budgets of attempts are in no event), and the end of
  the data is taken to have come where an event can only be right there;
- columns are written group by group, or not at all; a window may end without an image, which then is never published;
- a rollout snapshot may be skipped where the machine would take it: a new process knows of no anchor.
"""

from cleancut_leaf.public import names_in_stub

__getattr__, __dir__, __all__ = names_in_stub(__name__, __file__)
