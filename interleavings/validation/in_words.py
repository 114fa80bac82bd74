"""What came of a trace, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

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
        yield f"{apart} restores go on from a checkpoint that these traces do not show being saved; taken as they say"
    for what in NOT_SHOWN:
        yield f"a trace does not show: {what}"
    yield (
        f"validate: {result.verdict}, {_counted(result.events, 'event')} in {_counted(result.lines, 'line')}, "
        f"{_counted(result.segments, 'segment')} ({result.cut_short} cut short), "
        f"{_counted(result.restores, 'restore')}, at most {_counted(result.most_alive, 'prompt')} alive at once"
    )


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _refused(refusal: Refusal) -> Iterator[str]:
    yield f"{refusal.file}, line {refusal.line} (segment {refusal.segment}): {refusal.event}"
    yield f"  no action fits: {refusal.why}"
    if refusal.enabled:
        yield "  allowed there: " + "; ".join(refusal.enabled)
