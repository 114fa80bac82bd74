"""Which names may stand in a checkpoint directory, and that data never becomes one."""

import hypothesis
import hypothesis.strategies as st
import pytest

from impl import UsageError
from impl.store import names

ODD = [
    "a/b",
    "../x",
    "/abs",
    ".",
    "..",
    "",
    "x" * 300,
    "a\0b",
    "a\nb",
    "a\\b",
    "CON",
    "\N{SNOWMAN}",
    "\u202eab",
    "C:\\x",
]


@pytest.mark.parametrize("name", [*(odd for odd in ODD if odd != "a/b"), "a//b", "a/../b", "a/./b", "a/", "a..b"])
def test_case_E16_an_odd_name_is_refused_before_it_reaches_a_path(name: str) -> None:
    """Cases E16, E19: a key as a path part leads outside or makes a directory that pruning does not see."""
    assert not names.is_member_name(name)
    with pytest.raises(UsageError, match="keep ids"):
        names.check_member_name(name)


@hypothesis.given(st.text("ab0_-./\\A\0", min_size=1).filter(names.is_member_name))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.filter_too_much])
def test_no_accepted_name_leads_outside_its_directory(name: str) -> None:
    """Whatever is accepted is made of plain lower-case parts, none of which is a way up or a hidden file."""
    assert all(part and part[0] not in "./" and part not in ("..", ".") for part in name.split("/"))
    assert name == name.lower()
    assert "\\" not in name
    assert "\0" not in name


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256"])
def test_a_participant_cannot_write_the_manifest(name: str) -> None:
    """It would pass for the real one."""
    with pytest.raises(UsageError):
        names.check_member_name(name)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("step_10-3", (10, 3)),
        ("step_0-1", (0, 1)),
        ("step_000010-03", (10, 3)),
        ("step_10", None),
        ("step_10-3.bak", None),
        ("step_-1-3", None),
        ("step_1-\u0663", None),
        ("best", None),
        ("000100.bak", None),
        ("step_1-2\n", None),
        ("step_" + "9" * 5000 + "-1", None),
    ],
)
def test_case_E09_a_checkpoint_name_is_read_as_numbers_whatever_its_padding(
    name: str, numbers: tuple[int, int] | None
) -> None:
    """Case E09: padding changes between runs, and a sibling that is no number is no checkpoint."""
    assert names.parse_checkpoint_name(name) == numbers


@hypothesis.given(st.integers(0, 10**17), st.integers(0, 10**17))
def test_a_name_made_here_is_read_back_as_its_numbers(step: int, sequence: int) -> None:
    """The two directions are one another's inverse."""
    assert names.parse_checkpoint_name(names.checkpoint_name(step, sequence)) == (step, sequence)
