"""How a command speaks to a terminal: its parser, its completion, its texts, how far it is, and how it ends.

Only commands import this file, since it loads rich. rich leaves colours out where NO_COLOR is set and where the output
is no terminal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from .extras import why_missing

WRONG_USE, NOT_COMPLETE, NOT_ALL_SHOWN = 2, 3, 3

try:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text
except ModuleNotFoundError as missing:
    # Nobody but a command imports this file, and no command speaks without rich.
    print(f"this command needs {missing.name}, which is not installed: pip install rich", file=sys.stderr)
    raise SystemExit(NOT_COMPLETE) from None

WIDEST_HELP = 100

_BASH_DISPATCH = """
# `python -m MODULE` is completed by the function above that is called after MODULE; loaded ones add up.
_cleancut_of_python() {
  local known="_shtab_cleancut_${COMP_WORDS[2]-}"
  if [[ ${COMP_WORDS[1]-} == -m && $COMP_CWORD -gt 2 ]] && declare -F "$known" > /dev/null; then
    COMP_WORDS=("${COMP_WORDS[@]:2}")
    COMP_CWORD=$((COMP_CWORD - 2))
    "$known"
  fi
}
complete -o default -o bashdefault -F _cleancut_of_python python python3
"""

_ZSH_DISPATCH = """
# `python -m MODULE` is completed by the function above that is called after MODULE, everything else as before.
_cleancut_of_python() {
  local known="_shtab_cleancut_${words[3]-}" curcontext="$curcontext"
  local -A opt_args
  if [[ ${words[2]-} == -m ]] && (( CURRENT > 3 && $+functions[$known] )); then
    words=("${(@)words[3,-1]}")
    (( CURRENT -= 2 ))
    "$known"
  elif (( $+functions[_python] )); then
    _python "$@"
  else
    _default
  fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }
compdef _cleancut_of_python python python3
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of examples, and is no wider than is read with ease."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, WIDEST_HELP)
        super().__init__(prog, max_help_position=28, width=max(width, 40))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        kept = text.startswith("examples:")
        return super()._fill_text(text, width, indent) if kept else textwrap.fill(" ".join(text.split()), width)


class _PrintCompletion(argparse.Action):
    """Prints the completion of the whole command, and ends it."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        try:
            import shtab
        except ImportError:
            parser.error("completion needs shtab, which is not installed; pip install 'cleancut[completion]'")
        # A word of its own: zsh's functions compare it, unquoted, with where they are.
        module = parser.prog = parser.prog.rpartition(" ")[2]
        script = shtab.complete(parser, values, root_prefix=f"cleancut_{module}")
        # Its last lines and the first ones are for commands of a single word, which `python -m` is not.
        script = script.partition("\ntypeset -A opt_args\n")[0]
        body = "\n".join(line for line in script.splitlines() if not line.startswith(("#", "complete ")))
        dispatch = _ZSH_DISPATCH if values == "zsh" else _BASH_DISPATCH
        print(f'# eval "$(python -m {module} --print-completion {values})"\n{body}{dispatch}')
        raise SystemExit(0)


def plain(text: str, encoding: str = "utf-8", kept: str = "") -> str:
    """The text with everything that is not a visible character or a blank spelled out, as `\\x1b` or `\\u202e`.

    What is read from a file, a name among them, may have been written by anybody: what a terminal obeys could clear the
    screen or forge a verdict, and a name that is no UTF-8 could not be written at all. `kept` stays as it is.
    """
    shown = "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode("ascii") for each in text
    )
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def complain(program: str, message: object) -> None:
    """One line on standard error."""
    print(f"{program}: {plain(str(message))}", file=sys.stderr)


def ended(program: str, command: Callable[[], int]) -> int:
    """The exit status of a command, whatever becomes of it: a fault of ours is never one that it found."""
    try:
        return command()
    except KeyboardInterrupt:
        complain(program, "interrupted; nothing is concluded")
    except ImportError as fault:
        missing = why_missing(fault)
        if missing is None:
            traceback.print_exc()
        complain(program, missing or "this is a fault of the command, or of how it is installed; nothing is concluded")
    except Exception:
        traceback.print_exc()
        complain(program, "this is a fault of the command, and nothing is concluded; please report it")
    return NOT_COMPLETE


class CannotWrite(Exception):
    """A file that a command was to write cannot be written; the message is one clear line."""


def require_writable(file: str | None) -> None:
    """Refuse a file to be written before the work is done that fills it."""
    if file is None:
        return
    path, folder = Path(file), Path(file).parent
    if not folder.is_dir():
        raise CannotWrite(f"cannot write {file}: there is no folder {folder}")
    if path.is_dir():
        raise CannotWrite(f"cannot write {file}: Is a directory")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise CannotWrite(f"cannot write {file}: Permission denied")


def require_folder(folder: str | Path) -> None:
    """Refuse a folder to be made or filled before the work is done that fills it."""
    path = Path(folder)
    there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    if not there.is_dir():
        raise CannotWrite(f"cannot write to {folder}: {there} is no folder")
    if not os.access(there, os.W_OK):
        raise CannotWrite(f"cannot write to {folder}: Permission denied")


def write_file(file: str | Path, text: str) -> None:
    """Write a text file as a whole or not at all; half a character, which a name may hold, is spelled out."""
    path = Path(file)
    content = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():  # a pipe, or /dev/stdout: there is nothing to be put in its place
            path.write_bytes(content)
            return
        path = path.resolve()
        beside = path.with_name(f".{path.name[:40]}.{os.getpid()}")
        try:
            beside.write_bytes(content)
            if path.exists():
                shutil.copymode(path, beside)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as fault:
        raise CannotWrite(f"cannot write {file}: {fault.strerror or fault}") from None


class Screen(Console):
    """Where a command writes. Whoever reads from a pipe may stop (`| head`): that is no violation, and no pass.

    A text is shown as it is: nothing in it is markup, and nothing but a line break is obeyed.
    """

    def render_str(self, text: str, **settings: Any) -> Text:
        """Make a text renderable: one given to `print`, and one in a table."""
        settings.update(markup=False, emoji=False)
        return super().render_str(plain(text, self.encoding, kept="\n"), **settings)

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()  # writes no more, and ends with 1
        except SystemExit as end:
            raise SystemExit(NOT_ALL_SHOWN) from end


class Parser(argparse.ArgumentParser):
    """A parser that refuses in one line with status 2. Give the outermost one as `completes=True`."""

    def __init__(self, *arguments: Any, completes: bool = False, **settings: Any) -> None:
        settings.setdefault("formatter_class", _Help)
        settings.setdefault("allow_abbrev", False)  # what is short for one option today is for two tomorrow
        super().__init__(*arguments, **settings)
        if completes:
            self.add_argument(
                "--print-completion",
                action=_PrintCompletion,
                choices=("bash", "zsh"),
                metavar="SHELL",
                help="print a completion script for bash or zsh, and end",
            )

    def error(self, message: str) -> NoReturn:
        complain(self.prog, f"{message} (try --help)")
        raise SystemExit(WRONG_USE)


def completed_by_files(action: argparse.Action, *, directories: bool = False) -> None:
    """Let the shell complete an argument by names of files, or of directories."""
    action.complete = {  # type: ignore[attr-defined]
        "bash": "_shtab_compgen_dirs" if directories else "_shtab_compgen_files",
        "zsh": "_files -/" if directories else "_files",
    }


def complete_files(parser: argparse.ArgumentParser) -> None:
    """Let the shell complete every argument that is shown as FILE, DIR or a trace, in all subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                complete_files(command)
        elif action.metavar == "DIR":
            completed_by_files(action, directories=True)
        elif action.metavar == "FILE" or action.dest == "trace":
            completed_by_files(action)


class _Doing(ProgressColumn):
    """What is being done: the one column that gives way where the terminal is narrow, and never takes a second line."""

    def __init__(self) -> None:
        super().__init__(table_column=Column())

    def render(self, task: Task) -> Text:
        """Its beginning, as far as there is room."""
        return Text(task.description, no_wrap=True, overflow="ellipsis")


class _Rate(ProgressColumn):
    """How many a second."""

    def __init__(self, unit: str) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._unit = unit

    def render(self, task: Task) -> Text:
        """The rate of the last half minute; nothing until there is one."""
        speed = task.finished_speed or task.speed
        if speed is None:
            return Text("")
        number = f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
        return Text(f"{number} {self._unit}/s", style="dim")


class HowFar:
    """What a long command tells of itself while it runs; the way to nowhere where nobody watches."""

    def __init__(self, bar: Progress | None, doing: str) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task(doing, total=None)

    def at(self, done: float, total: float | None = None, doing: str | None = None) -> None:
        """So much is done, of so much where that is known, and this is being done."""
        if self._bar is not None and self._task is not None:
            known: dict[str, Any] = {} if doing is None else {"description": doing}
            # More than was expected is no reason to say that it is over.
            total = None if total is not None and done > total else total
            self._bar.update(self._task, completed=done, total=total, **known)

    def one_more(self, total: int) -> Callable[[], None]:
        """A function to be called whenever one of `total` has ended."""
        ended = count(1)
        return lambda: self.at(next(ended), total)


@contextmanager
def how_far(console: Console, doing: str, unit: str) -> Iterator[HowFar]:
    """Show what is being done, how fast and for how long still, on a terminal only; gone when it is over."""
    if not console.is_terminal:
        yield HowFar(None, doing)
        return
    columns: Sequence[ProgressColumn] = (
        SpinnerColumn(),
        _Doing(),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f}", markup=False),
        _Rate(unit),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield HowFar(bar, doing)
