"""A test whose tool is missing is skipped, counted and named at the end of the run; it never reads as a pass."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with our own configuration and conftest, on a machine that has none of the tools."""
    pytester.makepyprojecttoml((ROOT / "pyproject.toml").read_text())
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    empty = pytester.mkdir("empty")
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("PYENV_ROOT", str(empty))
    return pytester


def run(suite: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_inprocess(suite.makepyfile(source), "-p", "no:cacheprovider", *arguments)


def test_missing_tool_is_one_line_with_reason_and_count(suite: pytest.Pytester) -> None:
    """Twenty skipped tests are one missing tool: the reader needs the tool, the reason and how much it costs."""
    result = run(
        suite,
        """
        import pytest

        @pytest.mark.needs("spin")
        @pytest.mark.parametrize("scope", [1, 2, 3])
        def test_counts_agree(scope): assert False

        @pytest.mark.needs("other-python")
        def test_elsewhere(): assert False

        def test_plain(): pass
        """,
    )
    result.assert_outcomes(passed=1, skipped=4)
    result.stdout.fnmatch_lines_random(
        [
            "not run: spin (no `spin` on PATH) – 3 tests",
            "not run: other-python (no other of CPython 3.11, 3.12, 3.13 on PATH or in pyenv) – 1 test",
        ]
    )


def test_present_tool_lets_the_test_run(suite: pytest.Pytester) -> None:
    """The guard must not hide a test on a machine that can run it: here the test runs, and fails."""
    for name in ("spin", "gcc"):
        tool = suite.path / "empty" / name
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    result = run(suite, 'import pytest\n@pytest.mark.needs("spin")\ndef test_counts_agree(): assert False')
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("not run:*")


def test_own_marker_of_a_tool_is_the_same_as_needs(suite: pytest.Pytester) -> None:
    """`@pytest.mark.chromium` selects and guards: a marker that only selected would fail where the tool is missing."""
    source = """
        import pytest

        @pytest.mark.chromium
        def test_page(): assert False

        @pytest.mark.needs("chromium")
        def test_other_page(): assert False

        def test_plain(): assert False
        """
    result = run(suite, source, "-m", "chromium")
    result.assert_outcomes(skipped=2, deselected=1)
    result.stdout.fnmatch_lines(["not run: chromium (none of chromium, chromium-browser, *) – 2 tests"])


def test_plain_skips_are_reported_as_other(suite: pytest.Pytester) -> None:
    """A skip that bypasses `needs` would otherwise be one letter among hundreds of dots."""
    result = run(
        suite,
        """
        import pytest

        def test_skips(): pytest.skip("the moon is full")

        @pytest.mark.skipif(True, reason="tide: out")
        def test_skipped(): assert False
        """,
    )
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines_random(
        ["not run: other (the moon is full) – 1 test", "not run: other (tide: out) – 1 test"]
    )


def test_module_skipped_at_collection_is_reported(suite: pytest.Pytester) -> None:
    """`importorskip` hides a whole file, so it is the skip that most needs a line."""
    result = run(suite, 'import pytest\npytest.importorskip("no_such_package_at_all")\ndef test_x(): pass')
    result.stdout.fnmatch_lines(["not run: other (could not import 'no_such_package_at_all'*) – 1 test"])


def test_unknown_tool_is_wrong_use(suite: pytest.Pytester) -> None:
    """A misspelt tool must not skip the test for ever."""
    result = run(suite, 'import pytest\n@pytest.mark.needs("spim")\ndef test_x(): pass')
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*needs 'spim', which is no known tool: chromium, cuda, mounts, other-python, pyright, ray, spin, tlc, zsh"]
    )


def test_only_a_test_that_needs_cuda_imports_torch(suite: pytest.Pytester) -> None:
    """Asking for a CUDA device costs seconds; a run of unrelated tests must not pay them."""
    source = """
        import sys
        import pytest

        def test_no_torch(): assert "torch" not in sys.modules
        """
    result = suite.runpytest_subprocess(suite.makepyfile(source), "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("available", "line"), [(True, "*1 failed*"), (False, "not run: cuda (torch finds no *) – 1 test")]
)
def test_cuda_is_whatever_torch_says(suite: pytest.Pytester, available: bool, line: str) -> None:
    """A card in the machine is of no use where this build of torch cannot drive it."""
    suite.makepyfile(torch=f"class cuda:\n    is_available = staticmethod(lambda: {available})")
    test = suite.makepyfile('import pytest\n@pytest.mark.needs("cuda")\ndef test_copy(): assert False')
    suite.runpytest_subprocess(test, "-p", "no:cacheprovider").stdout.fnmatch_lines([line])
