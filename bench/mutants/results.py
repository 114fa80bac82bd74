"""What was found out, kept in files: which statements each scenario and test runs, and what became of each mutant.

Everything is kept under the digest of the sources that it rests on, so that an interrupted run goes on where it was,
and an edit asks again only about what it may have changed: what a scenario said rests on the library, the explorer and
the machines, what a test said also on its own file and on what stands beside the tests.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

LIBRARY = ("cleancut_leaf", "impl", "interleavings", "spec")
OF_THE_SCENARIOS = ("test_scenario", "test_library_mutants", "test_library_edits")
"""Tests that search the scenarios, whose word is asked for by itself, and those of this tool."""


@dataclass
class Judged:
    """What became of one mutant. `scenario` and `test` name who noticed it first, by a verdict and not by a count."""

    key: str
    group: str
    operator: str
    refusal: bool
    check: str = ""
    """The quick scenario by which `make check` fails, be it for its counts."""
    counted: str = ""
    """A scenario of which nothing but the counts moved."""
    scenario: str = ""
    test: str = ""
    why: str = ""
    timeout: str = ""
    """What took more than twenty times as long as without the edit: a hang."""
    asked: list[str] = field(default_factory=list)
    """Scenarios and tests that run the line and let the edit pass."""
    not_asked: list[str] = field(default_factory=list)
    """Those for which there was no time."""
    seconds: float = 0.0

    @property
    def noticed(self) -> bool:
        """Whether anybody did, by more than a count."""
        return bool(self.scenario or self.test or self.timeout)

    @property
    def noticed_by(self) -> str:
        """`scenarios`, `tests`, `timeout`, `counts` or `nothing`."""
        if self.scenario:
            return "scenarios"
        if self.test:
            return "tests"
        if self.timeout:
            return "timeout"
        return "counts" if self.counted else "nothing"


class Store:
    """The files of one run."""

    def __init__(self, directory: Path, root: Path) -> None:
        self.directory = directory
        self.root = root
        self._files: dict[str, str] = {}
        for name in ("ran", "judged"):
            (directory / name).mkdir(parents=True, exist_ok=True)

    @cached_property
    def library(self) -> str:
        """The digest of all that a scenario rests on."""
        return digest_of(self.root, (path for package in LIBRARY for path in (self.root / package).rglob("*.py")))

    @cached_property
    def helpers(self) -> str:
        """The digest of what tests import beside the library."""
        tests = self.root / "tests"
        return digest_of(self.root, (path for path in tests.glob("*.py") if not path.name.startswith("test_")))

    def of_test_file(self, name: str) -> str:
        """The digest of what a test rests on."""
        if name not in self._files:
            file = self.root / "tests" / name
            known = digest_of(self.root, [file]) if file.exists() else "gone"
            self._files[name] = f"{self.library}-{self.helpers}-{known}"
        return self._files[name]

    # -- what ran

    def ran(self, name: str, digest: str) -> dict[str, Any] | None:
        """What was recorded of a scenario or of a file of tests; None if that was with other sources."""
        kept = read(self.directory / "ran" / f"{name}.json")
        return kept if kept is not None and kept["digest"] == digest else None

    def keep_ran(self, name: str, digest: str, /, **what: Any) -> None:
        """Keep what was recorded."""
        write(self.directory / "ran" / f"{name}.json", {"digest": digest, **what})

    # -- what was judged

    def judged(self, key: str) -> Judged | None:
        """What is known of a mutant, less what rested on sources that have changed since; None if that is all."""
        kept = read(self._file(key))
        if kept is None or kept["library"] != self.library:
            return None
        judged = Judged(**kept["judged"])
        stale = {file for file, digest in kept["files"].items() if digest != self.of_test_file(file)}
        if file_of(judged.test) in stale:
            judged.test = judged.why = ""
        if file_of(judged.timeout) in stale:
            judged.timeout = judged.why = ""
        for names in (judged.asked, judged.not_asked):
            names[:] = [name for name in names if file_of(name) not in stale]
        return judged

    def keep_judged(self, judged: Judged) -> None:
        """Keep what became of a mutant."""
        names = (*judged.asked, *judged.not_asked, judged.test, judged.timeout)
        files = {file_of(name) for name in names} - {""}
        digests = {file: self.of_test_file(file) for file in sorted(files)}
        write(self._file(judged.key), {"library": self.library, "files": digests, "judged": asdict(judged)})

    def _file(self, key: str) -> Path:
        return self.directory / "judged" / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.json"


def test_files(root: Path) -> list[str]:
    """The files of tests that import the library, themselves or by what stands beside them."""
    imports = {path.stem: _imported(path) for path in (root / "tests").glob("*.py")}
    reaching = {name for name, modules in imports.items() if "impl" in modules}
    while more := {name for name, modules in imports.items() if modules & reaching} - reaching:
        reaching |= more
    return sorted(
        f"{name}.py" for name in reaching if name.startswith("test_") and not name.startswith(OF_THE_SCENARIOS)
    )


def file_of(test: str) -> str:
    """The file of a test by its name, without its folder; nothing for a scenario."""
    return test.partition("::")[0].rpartition("/")[2] if "::" in test or test.endswith(".py") else ""


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def digest_of(root: Path, paths: Iterable[Path]) -> str:
    """One digest of several files, names included."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(paths):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def read(path: Path) -> dict[str, Any] | None:
    """A document that was kept; None if there is none, or half of one."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def write(path: Path, document: Any) -> None:
    """Keep a document: whole, or as it was."""
    made = path.with_suffix(".new")
    made.write_text(json.dumps(document), encoding="utf-8")
    made.replace(path)
