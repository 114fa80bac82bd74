"""Every event the library emits, by the machine that has its action, and the events that move nothing."""

from __future__ import annotations

BARRIER_EVENTS = frozenset(
    {
        "request_slot",
        "enter_slot",
        "leave_slot",
        "withdraw_slot",
        "request_cut",
        "open_cut",
        "close_cut",
        "withdraw_cut",
        "expire_lease",
    }
)
CUT_EVENTS = frozenset(
    {
        "abort_stale",
        "borrow",
        "claim",
        "commit_admission",
        "commit_group",
        "dispatch",
        "divert_batch",
        "drain_pool",
        "drop",
        "empty_step",
        "end_epoch",
        "evict",
        "fail_attempt",
        "fail_save",
        "finish_step",
        "pass_gate",
        "publish",
        "read_buffer",
        "read_ledger",
        "read_loader",
        "read_pool",
        "read_sampler",
        "read_trainer",
        "remove_committed",
        "reserve_batch",
        "restore",
        "retry",
        "shrink",
        "skip_snapshot",
        "substitute",
        "write_back",
    }
)
# Not actions: they tell figures, and move nothing in any machine.
FIGURE_EVENTS = frozenset({"report_save"})

COUNTED_IN_AS_A_BATCH = "enter_slot after close_cut: the machine counts the whole batch in with the release"
CLOSED_WITH_ITS_LEASE = "expire_lease of a cut: the machine closes it in that instant, the library once everybody knows"
SLOTS_ARE_ATOMIC = "request_cut, close of slots: the cut machine asks for its cut in the instant it opens"
DURABLE_LATER = "publish: the image was fixed when the window closed; its durability changes nothing in memory"
SKIPPED_INSIDE = "close_cut of a skipped snapshot: the machine's save ended when it was skipped"
LAST_EPOCH = "end_epoch of the last epoch: the machine's loader stays there, with its exhausted bit"
PART_OF_AN_ACTION = "drop: the account moves with the action that is named beside it"
EACH_GROUP_BY_ITSELF = "write_back: the machine writes the columns of a whole step, or has none"
STARTS_RESTORED = "restore and its section: the machine is followed from the restored state"
