"""The pages in a real browser: a quiet console, no sideways scrolling, legible in light and dark, links that lead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cleancut.report import page as report_page
from interleavings import explore
from interleavings.conformance import explain
from spec.command import check_variant
from spec.machines import all_variants

pytestmark = pytest.mark.chromium

#: The longest of each machine, and one that shows a cut within a cut.
SHOWN = ("claimed_forgotten", "fifo_bare_minimum", "nested_slot", "name_is_the_step", "snapshot_checked_early")
#: Contrast of text to what is behind it that the guidelines for the web ask of ordinary text.
ENOUGH_CONTRAST = 4.5
BREAKS_LOOSELY = "averylongnamewithoutanyplacetobreakit" * 6


async def two_tasks_with_long_names() -> None:
    """A lost update between tasks whose names do not fit a phone."""
    import asyncio

    value = 0

    async def add() -> None:
        nonlocal value
        seen = value
        await asyncio.sleep(0)
        value = seen + 1

    loop = asyncio.get_running_loop()
    for task in [loop.create_task(add(), name=f"{BREAKS_LOOSELY}{i}") for i in range(2)]:
        await task
    assert value == 2, BREAKS_LOOSELY


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder as `make check` leaves it: the report, and the page of each trace beside it."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "traces").mkdir()
    made: dict[str, Path] = {}
    variants: list[dict[str, Any]] = []
    for machine, variant in all_variants():
        if variant.name in SHOWN:
            result = check_variant(machine, variant, folder)
            assert result.counterexample is not None
            text = explain(json.loads(result.counterexample.read_text(encoding="utf-8")), "trace")
            made[variant.name] = folder / "traces" / f"{result.counterexample.stem}.html"
            made[variant.name].write_text(text, encoding="utf-8")
            variants.append(result.document())
    found = explore(two_tasks_with_long_names)
    assert found.counterexample is not None
    made["schedule"] = folder / "traces" / "schedule.html"
    made["schedule"].write_text(explain(found.counterexample.to_json(), "trace"), encoding="utf-8")
    made["report"] = folder / "index.html"
    made["report"].write_text(report_page(a_report(variants)), encoding="utf-8")
    return made


def a_report(variants: list[dict[str, Any]]) -> dict[str, Any]:
    """A report with something in every section, as small as that can be."""
    scope = {
        "scope": "small/one_round",
        "verdict": "holds",
        "complete": True,
        "states": 18,
        "transitions": 22,
        "depth": 5,
    }
    machine = {
        "machine": "barrier", "verdict": "bounded", "why": f"out of memory {BREAKS_LOOSELY}", "scopes": [scope],
        "properties": {"cut_excludes_writers": "holds", "no_overtaking": "bounded"}, "counterexample": None,
    }  # fmt: skip
    scenario = {
        "scenario": "commit", "verdict": "holds", "why": None, "complete": True, "states": 2792,
        "schedules": 9853565711520, "cancels": 0, "properties": {"refinement": "holds"}, "counterexample": None,
        "actions_taken": {"claim": 4164}, "actions_never_taken": ["borrow"], "stutters": {"publish: later": 12},
    }  # fmt: skip
    obligation = {
        "obligation": "ownership: initiation", "machine": "cut", "verdict": "holds", "assumes": "slots are atomic",
        "excludes": "permits",
    }  # fmt: skip
    commands = ("spec", "variants", "interleavings", "proofs")
    return {
        "verdict": "inconclusive", "scope": "small", "seconds": 40.1,
        "parts": {name: {"verdict": "holds", "seconds": 3.2} for name in commands},
        "pages": {v["counterexample"]: f"traces/{Path(v['counterexample']).stem}.html" for v in variants},
        "spec": {"machines": [machine]}, "variants": variants, "interleavings": [scenario],
        "proofs": {"verdict": "holds", "obligations": [obligation]},
    }  # fmt: skip


@pytest.fixture(scope="module")
def shown() -> Iterator[Any]:
    """One browser for all; it takes seconds to start."""
    # Selenium is there only where the browser is.
    from browser import browser

    with browser() as found:
        yield found


PAGES = (*SHOWN, "schedule", "report")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_a_page_fits_its_width_and_says_nothing_on_the_console(
    pages: dict[str, Path], shown: Any, width: int, scheme: str
) -> None:
    """On a phone, a laptop and a wide screen: no sideways scrolling, nothing cut off, no error."""
    for name in PAGES:
        shown.show(pages[name], width, scheme)
        assert shown.ask("document.documentElement.scrollWidth") <= width, name
        assert shown.ask(OUTSIDE) == [], name
        assert shown.console() == [], name


OUTSIDE = """
[...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  const hidden = element.closest('.skip, script, style') || !box.width;
  const scrolls = element.closest('.wide');
  return !hidden && !scrolls && (box.right > innerWidth + 1 || box.left < -1);
}).map(element => element.className + ' ' + element.textContent.slice(0, 60))
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(pages: dict[str, Path], shown: Any, scheme: str) -> None:
    """The contrast of ordinary text, measured on what the browser really paints."""
    for name in PAGES:
        shown.show(pages[name], 1280, scheme)
        pale = [(text, ratio) for text, ratio in shown.ask(CONTRASTS) if ratio < ENOUGH_CONTRAST]
        assert pale == [], name


CONTRASTS = """
(() => {
  const parts = colour => (colour.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      const alpha = parts(colour)[3];
      if (colour !== 'transparent' && (alpha === undefined || alpha > .5)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || !element.getClientRects().length || element.closest('script, style, .skip')) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    seen.push([text.slice(0, 40), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]);
  }
  return seen;
})()
"""


def test_lanes_the_cut_and_the_marked_prompt_are_there(pages: dict[str, Path], shown: Any) -> None:
    """Seen by the browser: a mark in one lane a step, a band over the lanes, an outline around the prompt."""
    shown.show(pages["claimed_forgotten"], 1280, "light")
    lanes = shown.ask("document.querySelectorAll('.head').length")
    assert lanes >= 5
    rows = shown.ask("[...document.querySelectorAll('.step')].map(s => s.querySelectorAll('.rail.on').length)")
    assert rows[0] == 0, "the beginning"
    assert set(rows[1:]) == {1}
    assert shown.ask("document.querySelectorAll('.step .rail').length") == lanes * len(rows)
    plain, open_cut = shown.ask(
        "['.step:not(.band-open) .rails', '.step.band-open .rails'].map("
        "q => getComputedStyle(document.querySelector(q)).backgroundColor)"
    )
    assert plain != open_cut
    assert shown.ask("getComputedStyle(document.querySelector('.concerned')).outlineStyle") == "solid"
    assert "is violated" in shown.ask("document.querySelector('.verdict').textContent")


def test_the_timeline_can_be_walked_by_keys(pages: dict[str, Path], shown: Any) -> None:
    """`j` and `k` go from step to step, `e` to the one that breaks it; the focus can be seen."""
    shown.show(pages["claimed_forgotten"], 1280, "light")
    at = "[...document.querySelectorAll('.step')].indexOf(document.activeElement)"
    assert shown.ask(at) == -1
    places = []
    for key in "jjjke":
        shown.press(key)
        places.append(shown.ask(at))
    last = shown.ask("document.querySelectorAll('.step').length") - 1
    assert places == [0, 1, 2, 1, last]
    assert shown.ask("document.activeElement.id") == "broken"
    assert shown.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    box = shown.ask("(b => [b.top, b.bottom, innerHeight])(document.activeElement.getBoundingClientRect())")
    assert 0 <= box[0] < box[2], "in sight"


def test_in_print_nothing_is_hidden_behind_colours_or_sticks(pages: dict[str, Path], shown: Any) -> None:
    """Dark ink on white paper, whatever the screen's scheme is, and the head stays where it is."""
    for name in ("claimed_forgotten", "report"):
        shown.show(pages[name], 1280, "dark", media="print")
        assert shown.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", name
        assert shown.ask("getComputedStyle(document.body).color") == "rgb(0, 0, 0)", name
    shown.show(pages["claimed_forgotten"], 1280, "dark", media="print")
    assert shown.ask("getComputedStyle(document.querySelector('.heads')).position") == "static"


def test_every_link_of_the_report_leads_somewhere(pages: dict[str, Path], shown: Any) -> None:
    """Sections by their anchors, traces by their files: each variant one click away."""
    shown.show(pages["report"], 1280, "light")
    links = shown.ask("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    anchors, files = ([x for x in links if x.startswith("#") is inside] for inside in (True, False))
    assert len(anchors) >= 6
    assert [x for x in anchors if not shown.ask(f"!!document.getElementById({x[1:]!r})")] == []
    assert len(files) == len(SHOWN)
    for file in files:
        target = pages["report"].parent / file
        shown.show(target, 1280, "light")
        assert re.search(r"is violated", shown.ask("document.body.textContent")), file
        assert shown.console() == []
