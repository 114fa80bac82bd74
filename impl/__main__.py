"""`python -m impl`: the demonstration, and the tools for a checkpoint directory.

Exit 0 holds · 1 violation or corruption · 2 wrong use · 3 not complete.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from cleancut_leaf.extras import why_missing
from cleancut_leaf.terminal import Parser, Screen, complain, complete_files, ended

WRONG_USE = 2
INTERRUPTED = 130
EXAMPLES = """examples:
  python -m impl demo --kills 3             a small real run, killed and resumed
  python -m impl fsck checkpoints           every byte and every prompt's owner; exit 1 on trouble
  python -m impl fsck --probe /mnt/shared   does this file system do what the store needs?
  python -m impl inspect checkpoints --json state.json
  python -m impl watch checkpoints          the saves of a live run as they come
"""


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 50:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 50")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.01 to a million")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        completes=True,
        prog="python -m impl",
        description="Cleancut's production library, at the command line.",
        epilog=EXAMPLES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="a small real run, killed and resumed, with an account of every prompt")
    demo.add_argument("--kills", type=_count, default=3, metavar="N", help="how many lives end with SIGKILL (3)")
    demo.add_argument("--seed", type=int, default=0, help="decides data, policy, kill points and delays (0)")
    demo.add_argument("--directory", type=Path, metavar="DIR", help="keep checkpoints and log here; must be empty")
    fsck = commands.add_parser(
        "fsck", help="integrity of every file, the owners of every key, what a resume would take"
    )
    fsck.add_argument("--probe", action="store_true", help="try out whether the file system of DIR does what is needed")
    inspect = commands.add_parser("inspect", help="what the checkpoints consist of, without reading the payload")
    for command in (fsck, inspect):
        command.add_argument("directory", type=Path, metavar="DIR", help="where a run keeps its checkpoints")
        command.add_argument("--json", metavar="FILE", nargs="?", const="-", help="also as JSON (no FILE: only JSON)")
    watch = commands.add_parser("watch", help="the saves of a run as they come, until Ctrl-C; a line each when piped")
    watch.add_argument("directory", type=Path, metavar="DIR", help="where a run keeps its checkpoints, or will")
    watch.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between two looks (1)")
    watch.add_argument("--seconds", type=_seconds, metavar="S", help="end after so long, instead of by Ctrl-C")
    complete_files(parser)
    return parser


def _refuse(message: str) -> int:
    complain("python -m impl", message)
    return WRONG_USE


def _look_into(chosen: argparse.Namespace) -> int:
    """Run `fsck` or `inspect`. Neither needs torch."""
    from .inspection.command_line import run_fsck, run_inspect

    try:
        if chosen.command == "fsck":
            return run_fsck(chosen.directory, chosen.json, chosen.probe, Screen())
        return run_inspect(chosen.directory, chosen.json, Screen())
    except KeyboardInterrupt:
        print("interrupted; not everything was looked at", file=sys.stderr)
        return INTERRUPTED


def _watch(chosen: argparse.Namespace) -> int:
    """Run `watch`, which needs no torch either."""
    from .errors import UsageError
    from .inspection.watch import run_watch

    try:
        return run_watch(chosen.directory, Screen(), chosen.interval, chosen.seconds)
    except (UsageError, OSError) as error:
        return _refuse(str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    chosen = _parser().parse_args(arguments)
    directory: Path | None = chosen.directory
    if chosen.command in ("fsck", "inspect"):
        return _look_into(chosen)
    if chosen.command == "watch":
        return _watch(chosen)
    if directory is not None and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        return _refuse(f"{directory} is not an empty directory; the demo begins a new run, give it a new one")
    if find_spec("torch") is None:  # the lives of the demo, processes of their own, would each fail by themselves
        return _refuse(f"{why_missing(ModuleNotFoundError(name='torch'))}")
    from .demo.parent import run_demo

    try:
        return run_demo(chosen.kills, chosen.seed, directory, Screen())
    except OSError as fault:
        return _refuse(f"{directory or 'the temporary directory'} cannot be used: {fault}")
    except KeyboardInterrupt:
        print("interrupted; nothing was checked", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(ended("python -m impl", main))
