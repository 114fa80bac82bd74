"""What came of a trace, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from cleancut_leaf.words import counted

from .validating import NOT_SHOWN, Refusal, Validation


def lines_about(result: Validation) -> Iterator[str]:
    """The refusal if there is one, what was not followed, what no trace shows, and one line that sums up."""
    if result.refusal is not None:
        yield from _refused(result.refusal)
    for reason in result.open_because:
        yield f"not followed: {reason}"
    if result.foreign:
        named = ", ".join(f"{name} ({count:,})" for name, count in result.foreign.most_common(8))
        yield f"events of the program itself, which no machine has: {named}"
    if result.restores > result.restores_compared:
        apart = result.restores - result.restores_compared
        yield (
            f"{counted(apart, 'restore goes', 'restores go')} on from a checkpoint that these traces do not show being "
            "saved; taken at its word"
        )
    for what in NOT_SHOWN:
        yield f"a trace does not show: {what}"
    yield (
        f"validate: {result.verdict}, {counted(result.events, 'event')} in {counted(result.lines, 'line')}, "
        f"{counted(result.segments, 'segment')} ({result.cut_short} cut short), "
        f"{counted(result.restores, 'restore')}, at most {counted(result.most_alive, 'prompt')} alive at once"
    )


def _refused(refusal: Refusal) -> Iterator[str]:
    yield f"{refusal.file}, line {refusal.line} (segment {refusal.segment}): {refusal.event}"
    yield f"  no action fits: {refusal.why}"
    if refusal.enabled:
        yield "  allowed there: " + "; ".join(refusal.enabled)
