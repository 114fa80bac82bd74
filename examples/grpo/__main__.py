"""`python -m examples.grpo`: the run, its kills and its checks.

Exit 0 all checks hold · 1 one fails · 2 wrong use · 3 one could not be made.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from .setting import SAMPLERS, Setting

WRONG_USE, INTERRUPTED = 2, 130
#: The mean reward rises by so much at the size of `make example`; measured are 0.46 to 0.63, and 0 without learning.
LEAST_GAIN = 0.3
#: The smallest number of steps of which the rise is asked.
STEPS_TO_LEARN = 250
EXAMPLES = """examples:
  python -m examples.grpo                              three kills; figures and report in build/example
  python -m examples.grpo --sampler windowed --staleness 2 --directory /tmp/windowed
  python -m examples.grpo --staleness 0 --kills 1 --epochs 1 --directory /tmp/short
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (try --help)", file=sys.stderr)
        raise SystemExit(WRONG_USE)


def _count(least: int, most: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return convert


def _weight(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 100")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m examples.grpo",
        description="Trains a tiny transformer to add by group-relative policy optimisation, on the CPU, while the run "
        "is killed with SIGKILL and resumed; then checks that every prompt was trained or dropped once.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = Setting()
    where = "a new or empty directory for checkpoints, trace, figures and report (%(default)s)"
    age = "how many steps old the policy of a group may be; lookahead of in_order (%(default)s)"
    seed = "decides data, weights, sampling, failures, kill points and delays (%(default)s)"
    weight = "weight of the divergence from the first policy (%(default)s)"
    add = parser.add_argument
    add("--directory", type=Path, default=Path("build/example"), metavar="DIR", help=where)
    add("--sampler", choices=SAMPLERS, default=default.sampler, help="(%(default)s)")
    add("--staleness", type=_count(0, 8), default=default.staleness, metavar="N", help=age)
    add("--kills", type=_count(0, 50), default=3, metavar="N", help="lives that end with SIGKILL (%(default)s)")
    add("--seed", type=_count(0, 2**31), default=default.seed, metavar="N", help=seed)
    add("--epochs", type=_count(1, 100), default=default.epochs, metavar="N", help="(%(default)s)")
    add("--rows", type=_count(1, 100_000), default=default.rows, metavar="N", help="prompts (%(default)s)")
    add("--workers", type=_count(0, 16), default=default.workers, metavar="N", help="of the dataloader (%(default)s)")
    add("--kl-weight", type=_weight, default=default.kl_weight, metavar="W", help=weight)
    return parser


def _refuse(message: str) -> int:
    print(f"python -m examples.grpo: {message}", file=sys.stderr)
    return WRONG_USE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the exit status."""
    chosen = _parser().parse_args(arguments)
    directory: Path = chosen.directory
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        return _refuse(f"{directory} is not an empty directory; a new run needs a new one, or remove it first")
    fields = ("sampler", "staleness", "seed", "epochs", "rows", "workers", "kl_weight")
    setting = Setting(**{name: getattr(chosen, name) for name in fields})
    try:
        from rich.console import Console

        from .killing import run_example
    except ImportError as missing:
        return _refuse(
            f"{missing.name} is not installed; the example needs cleancut with the extras torch, torchdata and plots"
        )
    least_gain = LEAST_GAIN if setting.steps >= STEPS_TO_LEARN else None
    try:
        return run_example(setting, directory, chosen.kills, least_gain, Console())
    except OSError as fault:
        return _refuse(f"{directory} cannot be used: {fault}")
    except KeyboardInterrupt as interruption:
        print(interruption.args[0] if interruption.args else "interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
