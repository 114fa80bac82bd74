"""The commands as somebody meets them at a terminal, and as a program meets them behind a pipe."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cleancut_leaf.terminal import WIDEST_HELP, WRONG_USE, Parser, how_far

ROOT = Path(__file__).parent.parent
MODULES = ("spec", "interleavings", "proofs", "impl", "cleancut")
ESCAPE = "\x1b"

# Commands that take a moment and say what they do meanwhile; small enough for a test.
LONG = {
    "spec": ["spec", "check", "--machine", "store"],
    "variants": ["spec", "variants"],
    "interleavings": ["interleavings", "check", "device"],
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write traces where they are called."""
    monkeypatch.chdir(tmp_path)


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def piped(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=3000, check=False)


def on_a_terminal(*arguments: str, **more: str) -> str:
    """Run a command whose output is a pseudo-terminal; all that it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], env=environment(**more), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = read_to_the_end(ours)
    assert process.wait() == 0, written
    return written


def read_to_the_end(terminal: int) -> str:
    """All that is written to a pseudo-terminal until nobody has it open any more, or is silent for two minutes."""
    written = b""
    while select.select([terminal], [], [], 120)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        written += part
    os.close(terminal)
    return written.decode()


@pytest.mark.parametrize("module", MODULES)
def test_help_shows_examples_that_are_commands_of_that_module(module: str) -> None:
    """Somebody who reads the help wants to copy a line; it must be one that the parser takes."""
    helped = piped(module, "--help", COLUMNS="200")
    assert helped.returncode == 0
    examples = re.findall(rf"^  python -m {module} (.*)$", helped.stdout, flags=re.MULTILINE)
    assert len(examples) >= 2
    described, _, _ = helped.stdout.partition("examples:")
    for example in examples:
        words = re.split(r"\s{2,}", example)[0].split()
        named = [word for word in words if word.startswith("--") or not words.index(word)]
        subcommand = [] if words[0].startswith("-") else words[:1]
        known = described + piped(module, *subcommand, "--help").stdout
        assert [word for word in named if word not in known] == []


@pytest.mark.parametrize("module", MODULES)
def test_help_is_no_wider_than_the_terminal_and_never_very_wide(module: str) -> None:
    """But for the examples: each is one line, since it is meant to be copied."""
    for columns, limit in (("60", 60), ("300", WIDEST_HELP)):
        text, _, _ = piped(module, "--help", COLUMNS=columns).stdout.partition("examples:")
        assert max(map(len, text.splitlines())) <= limit, columns


@pytest.mark.parametrize("module", MODULES)
def test_options_are_not_abbreviated(module: str) -> None:
    """A script that abbreviates would come to mean something else with the next option of that beginning."""
    refused = piped(module, "--hel")
    assert refused.returncode == WRONG_USE
    assert refused.stderr.startswith(f"python -m {module}: ")


@pytest.mark.parametrize("name", LONG)
def test_a_pipe_gets_results_alone(name: str) -> None:
    """No colours, no bar, no line that was wiped out again."""
    ran = piped(*LONG[name])
    assert ran.returncode == 0
    assert ran.stdout
    assert ran.stderr == ""
    assert ESCAPE not in ran.stdout
    assert "\r" not in ran.stdout
    assert "…" not in ran.stdout


def test_a_terminal_sees_how_far_it_is_at_which_rate_and_how_long_it_will_take() -> None:
    """And is left with the result alone: the line is wiped out at the end."""
    seen = on_a_terminal(*LONG["variants"], COLUMNS="120", LINES="40")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert re.search(r"\w+ … .*\d.* variants/s +\d+:\d\d", plain)
    assert f"{ESCAPE}[2K" in seen
    assert plain.rstrip().splitlines()[-1].startswith("spec variants: ")


def test_a_narrow_terminal_gets_one_line_with_rate_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being done is cut short, and nothing else; a second line would stay behind."""
    monkeypatch.setenv("COLUMNS", "60")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, height=20)
    with how_far(console, "…", "states") as shown:
        shown.at(1_000, 4_000)
        shown.at(2_000, 4_000, "a long story of what is being done at this very moment, depth 22")
        assert shown._bar is not None
        shown._bar.refresh()
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()))
    full = [line for line in lines if "a long" in line]
    assert full
    assert all(re.search(r"…\s.*2,000 [\d,]+ states/s +\d+:\d\d", line) for line in full), full
    assert all(len(line) <= 60 for line in lines)


def test_no_color_leaves_colours_out_on_a_terminal_too() -> None:
    """As no-color.org wants it; the line that moves is no colour."""
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
    arguments = ["impl", "fsck", "--probe", "."]
    with_colours = on_a_terminal("spec", "check", "--machine", "barrier", COLUMNS="100")
    assert coloured.search(with_colours)
    without = on_a_terminal("spec", "check", "--machine", "barrier", COLUMNS="100", NO_COLOR="1")
    assert not coloured.search(without)
    assert not coloured.search(piped(*arguments).stdout)


def completed(script: str, *words: str, cwd: Path = ROOT) -> list[str]:
    """What bash offers for the last of these words, with the script loaded."""
    program = (
        f'{script}\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n'
        "eval \"$(complete -p python | sed -E 's/.*-F ([^ ]+) .*/\\1/')\"\nprintf '%s\\n' \"${COMPREPLY[@]}\""
    )
    ran = subprocess.run(
        ["bash", "-c", program, "bash", *words], cwd=cwd, capture_output=True, text=True, timeout=3000, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return sorted(filter(None, (line.strip() for line in ran.stdout.splitlines())))


# What a person's zsh does at a prompt, without the person: the line is there, TAB is pressed, and every match that
# the completion adds is noted. Functions ask `compadd` questions of their own by -O, -A and -D; these add nothing.
ZSH_AT_A_PROMPT = r"""
autoload -Uz compinit && compinit -u -d $ZDOTDIR/../known
eval "$(< $SCRIPT)"
compadd() {
  [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]] || {
    local -a found
    builtin compadd -A found "$@"
    print -rl -- $found >> $MATCHES
  }
  builtin compadd "$@"
}
zle-line-init() { BUFFER=$LINE_SO_FAR; CURSOR=$#BUFFER; zle list-choices; exit 0; }
zle -N zle-line-init
"""


def completed_by_zsh(script: str, line: str, place: Path, cwd: Path = ROOT) -> list[str]:
    """What an interactive zsh offers at the end of this line, with the script loaded. `place` is a new folder."""
    place.mkdir()
    (place / ".zshrc").write_text(ZSH_AT_A_PROMPT, encoding="utf-8")
    (place / "script").write_text(script, encoding="utf-8")
    (place / "matches").touch()
    files = {"ZDOTDIR": str(place), "SCRIPT": str(place / "script"), "MATCHES": str(place / "matches")}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-d", "-i"], cwd=cwd, env=environment(LINE_SO_FAR=line, **files),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as shell:  # fmt: skip
        os.close(theirs)
        screen = read_to_the_end(ours)
        assert shell.wait(timeout=3000) == 0, screen
    return sorted({line.strip() for line in (place / "matches").read_text(encoding="utf-8").split("\n")} - {""})


def printed_completions(shell: str) -> dict[str, str]:
    found = {}
    for module in MODULES:
        printed = piped(module, "--print-completion", shell)
        assert printed.returncode == 0, printed.stderr
        found[module] = printed.stdout
    return found


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return printed_completions("bash")


def test_bash_completes_commands_options_and_values(scripts: dict[str, str], tmp_path: Path) -> None:
    """In a real bash, for `python -m MODULE`; several modules beside each other."""
    both = scripts["impl"] + scripts["spec"]
    assert completed(both, "python", "-m", "impl", "") == ["demo", "fsck", "inspect", "watch"]
    assert completed(both, "python", "-m", "impl", "fsck", "--p") == ["--probe"]
    assert completed(both, "python", "-m", "spec", "ch") == ["check"]
    assert completed(both, "python", "-m", "spec", "check", "--var") == ["--variant"]
    assert completed(scripts["interleavings"], "python", "-m", "interleavings", "re") == ["replay"]
    assert completed(scripts["cleancut"], "python", "-m", "cleancut", "c") == ["check"]
    assert completed(scripts["proofs"], "python", "-m", "proofs", "--q") == ["--quick"]
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "a-file").touch()
    assert completed(both, "python", "-m", "impl", "inspect", "", cwd=tmp_path) == ["checkpoints"]
    (tmp_path / "trace.json").touch()
    assert completed(scripts["interleavings"], "python", "-m", "interleavings", "replay", "tr", cwd=tmp_path) == [
        "trace.json"
    ]


def test_bash_is_left_alone_for_other_programs(scripts: dict[str, str]) -> None:
    """`python file.py` and modules of others complete as before."""
    assert completed(scripts["impl"], "python", "-m", "http.server", "") == []
    assert completed(scripts["impl"], "python", "READ") == []


@pytest.mark.needs("zsh")
def test_zsh_completes_commands_options_and_values(tmp_path: Path) -> None:
    """In a real zsh at a real prompt, for `python -m MODULE`; several modules beside each other."""
    scripts = printed_completions("zsh")
    both = scripts["impl"] + scripts["spec"]
    (tmp_path / "here" / "checkpoints").mkdir(parents=True)
    (tmp_path / "here" / "trace.json").touch()
    for number, (script, line, offered) in enumerate(
        (
            (both, "python -m impl ", ["demo", "fsck", "inspect", "watch"]),
            (both, "python3 -m impl fsck --p", ["--probe"]),
            (both, "python -m impl --print-completion ", ["bash", "zsh"]),
            (both, "python -m impl inspect ", ["checkpoints"]),
            (both, "python -m spec ch", ["check"]),
            (both, "python -m spec export t", ["tla"]),
            (scripts["interleavings"], "python -m interleavings replay tr", ["trace.json"]),
            (scripts["cleancut"], "python -m cleancut c", ["check"]),
            (scripts["proofs"], "python -m proofs --q", ["--quick"]),
        )
    ):
        assert completed_by_zsh(script, line, tmp_path / str(number), cwd=tmp_path / "here") == offered, line


@pytest.mark.needs("zsh")
def test_zsh_is_left_alone_for_other_programs(tmp_path: Path) -> None:
    """`python file.py` and modules of others complete as zsh itself does it; the control is zsh without the script."""
    script = printed_completions("zsh")["impl"]
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "read.py").touch()
    for number, line in enumerate(("python re", "python -m http.server --dir", "python -m im")):
        mine, own = (
            completed_by_zsh(loaded, line, tmp_path / f"{which}{number}", cwd=tmp_path / "here")
            for which, loaded in (("mine", script), ("own", ""))
        )
        assert mine == own, line
    assert completed_by_zsh(script, "python re", tmp_path / "file", cwd=tmp_path / "here") == ["read.py"]


def test_completion_without_its_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    """It is an extra; the line names it."""
    assert isinstance(capsys, pytest.CaptureFixture)
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as ended:
        Parser(prog="python -m spec", completes=True).parse_args(["--print-completion", "bash"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "pip install 'cleancut[completion]'" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["spec", "check", "--machine", "store"],
        ["interleavings", "check", "device"],
        ["proofs", "--quick"],
        ["impl", "fsck", "."],
    ],
    ids=" ".join,
)
def test_whoever_stops_reading_is_told_neither_of_a_violation_nor_of_a_pass(arguments: list[str]) -> None:
    """`python -m spec check | head -1` with pipefail: status 3, what was found was not shown; and no traceback."""
    Path(".LOCK").touch()  # a run that saves
    with subprocess.Popen(
        [sys.executable, "-m", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, "Traceback" in said) == (3, False), said
