"""The array engine on a CUDA device: whether it counts what the others count, and how fast.

    python bench/array_cuda.py [--device cuda|cpu] [--json FILE] [--quick]

One run of some four minutes, in this order:

- agreement: some small scopes and variants, everything reported compared with the reference engine;
- `large` of every machine: the pinned counts, and states a second;
- scopes beyond `large`, each larger than the one before, until one does not fit the memory or the time: states a second
  and how far it came; the counts compared where the compiled engine has counted them before.

Each row is also printed when it is known, on the standard error. A search that fails, or of which the counts have to be
known and are not reached, is a row that is not ok and says why; the others still run. After five minutes the run ends
with the stack of every thread and status 1.

`--device cpu` runs the same on the processor; with `--quick`, on small scopes, it is how the script is kept right where
there is no GPU. Without a device the answer is `not run` and status 3, never a pass. Needs torch.
"""

from __future__ import annotations

import faulthandler
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # also where the project is not installed

import torch  # noqa: E402
from parts.figures import Row, missed, only_shown, options_of, reported, truth  # noqa: E402

from spec.engines import Search  # noqa: E402
from spec.engines import reference as reference_engine  # noqa: E402
from spec.engines.arrays import engine  # noqa: E402
from spec.machines import FAMILIES, MACHINES, Pinned, scopes_named, variant_named  # noqa: E402  # noqa: E402
from spec.machines.cut import CutScope  # noqa: E402

SECONDS = 230.0
LAST_SECONDS = 300
AGREEMENT = (("barrier", "three_writers"), ("cut", "two_pairs"), ("store", "two_writers"), ("combined", "two_batches"))
VARIANTS = ("cursor_ahead", "gate_in_slot", "leak_on_cancel", "no_directory_fsync")
REPORTED = tuple(f.name for f in fields(Search) if f.name not in ("model", "seconds"))


def beyond() -> list[tuple[str, CutScope, Pinned | None]]:
    """Scopes of the cut larger than `large/features`, with the counts of the compiled engine where it has any."""
    scope = FAMILIES["large"]["cut"]["features"][0]
    assert isinstance(scope, CutScope)
    return [
        ("four saves", replace(scope, saves=4), Pinned(24_634_473, 58_431_587, 79)),
        ("four saves, three crashes", replace(scope, saves=4, crashes=3, failures=3, snapshots=3), None),
        ("four batches", replace(scope, batches=4, saves=4, crashes=3, failures=3, snapshots=3), None),
    ]


def same(one: Search, other: Search) -> bool:
    """Whether two searches report the same: counts, verdicts, actions taken, the path of the violation."""
    return all(getattr(one, name) == getattr(other, name) for name in REPORTED)


Part = tuple[str, Callable[[], list[Row]]]


def agreement(device: str) -> Iterator[Part]:
    """Everything that is reported, compared with the reference engine."""

    def compared(label: str, name: str, scope: object, variants: tuple[str, ...]) -> list[Row]:
        expected = reference_engine.search(MACHINES[name].model(scope, variants))
        return [truth(label, same(expected, engine.search(MACHINES[name], scope, variants, device=device)))]

    for name, member in AGREEMENT:
        label = f"as the reference engine: {name} {member}"
        yield label, partial(compared, label, name, FAMILIES["small"][name][member][0], ())
    for variant in VARIANTS:
        machine, known = variant_named(variant)
        ((_, (bounds, _)),) = scopes_named(machine, known.scope).items()
        label = f"as the reference engine: {variant}"
        yield label, partial(compared, label, machine.name, bounds, (variant,))


def searched(
    label: str, name: str, scope: object, pinned: Pinned | None, device: str, left: Callable[[], float], must: bool
) -> list[Row]:
    """The rows of one search: rate, states, and the counts where they are known; `must` they be reached?"""
    seconds = left()
    if seconds <= 0:
        return [missed(label, "not run, no time left") if must else only_shown(f"{label}: not run, no time left", 0)]
    found = engine.search(MACHINES[name], scope, device=device, max_seconds=seconds)
    rate = found.states / found.seconds / 1e6
    rows = [only_shown(f"{label}, {found.states:,} states (million states/s)", rate)]
    if found.verdict == "fails":
        rows.append(missed(label, "a violation, and the machine has none"))
    elif found.complete and pinned is not None:
        rows.append(truth(f"{label}: the known counts", Pinned(found.states, found.transitions, found.depth) == pinned))
    elif found.complete:
        rows.append(truth(f"{label}: complete, depth {found.depth}", found.verdict == "holds"))
    elif must:
        rows.append(missed(f"{label}: the known counts", f"not reached, {found.why}"))
    else:
        rows.append(only_shown(f"{label}: {found.why} (depth)", found.depth))
    return rows


def searches(device: str, *, quick: bool, left: Callable[[], float]) -> Iterator[Part]:
    """Every search that is timed, as long as there is time."""
    size = "small" if quick else "large"
    for name in MACHINES:
        family = list(FAMILIES[size][name].items())
        for member, (scope, pinned) in family[-1:] if quick else family:
            label = f"{name} {size}/{member}"
            yield label, partial(searched, label, name, scope, pinned, device, left, must=True)
    for label, bounds, known in () if quick else beyond():
        yield f"cut, {label}", partial(searched, f"cut, {label}", "cut", bounds, known, device, left, must=False)


def found_out(part: Part) -> list[Row]:
    """The rows of one part; one that is not ok where it fails."""
    label, rows = part
    try:
        return rows()
    except Exception as error:
        traceback.print_exc()
        return [missed(label, f"{type(error).__name__}: {error}".partition("\n")[0])]


def measure(device: str, *, quick: bool) -> list[Row]:
    """All rows, each printed as soon as it is known."""
    began = perf_counter()
    rows = []
    for part in [*agreement(device), *searches(device, quick=quick, left=lambda: SECONDS - (perf_counter() - began))]:
        for row in found_out(part):
            print(f"{'ok' if row.ok else 'NO'}  {row.figure}  {row.value:g}", file=sys.stderr, flush=True)
            rows.append(row)
    if device == "cuda":
        rows.append(only_shown("memory of the device at most in use (GiB)", torch.cuda.max_memory_allocated() / 2**30))
    return rows


def main(arguments: list[str]) -> int:
    parser = options_of("The array engine on a CUDA device: its counts and its rate.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where the tensors are")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("array_cuda: not run: torch finds no CUDA device; --device cpu --quick runs it without one")
        return 3
    began = perf_counter()
    if options.device == "cuda":
        faulthandler.dump_traceback_later(LAST_SECONDS, exit=True)
    rows = measure(options.device, quick=options.quick)
    faulthandler.cancel_dump_traceback_later()
    name = torch.cuda.get_device_name() if options.device == "cuda" else "the processor, one thread"
    return reported(
        f"array_cuda: {name}, torch {torch.__version__}, {perf_counter() - began:.0f} s", rows, options.json
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
