"""The site: what is drawn is what the machines do, what it links is in it, and nothing comes from the network."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spec.machines import MACHINES, SMALL

ROOT = Path(__file__).parent.parent
SITE = ROOT / "docs" / "site"


@pytest.fixture(scope="module")
def drawings() -> Iterator[Any]:
    sys.path.insert(0, str(SITE))
    yield importlib.import_module("protocol_drawings")
    sys.path.remove(str(SITE))


@pytest.fixture(scope="module")
def hooks(drawings: Any) -> Any:
    return importlib.import_module("hooks")


@pytest.fixture(scope="module")
def figures(drawings: Any) -> Any:
    return importlib.import_module("figures")


def svg_of(html: str) -> ElementTree.Element:
    (found,) = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    return ElementTree.fromstring(found)


def texts_of(svg: ElementTree.Element, kind: str) -> list[str]:
    """What stands in the boxes, or beside the arrows."""
    groups = [group for group in svg.iter() if group.get("class", "").split(" ")[0] == kind]
    return ["\n".join(span.text or "" for span in group.iter() if span.tag.endswith("tspan")) for group in groups]


def test_a_drawing_shows_every_state_of_the_barrier_and_every_action(drawings: Any) -> None:
    """As many boxes and arrows as the enumeration has states and transitions."""
    svg = svg_of(drawings.states_of_the_barrier())
    pinned = SMALL["barrier"]["one_round"][1]
    assert len(texts_of(svg, "node")) == pinned.states
    arrows = [path for path in svg.iter() if path.get("class", "").startswith("edge")]
    shown = sum(label.count("\n") + 1 for label in texts_of(svg, "label"))
    assert len(arrows) <= shown == pinned.transitions
    taken = {step.action.name for _, _, step in drawings.explored("barrier", "one_round")}
    assert {line for label in texts_of(svg, "label") for line in label.split("\n")} == taken


def test_the_life_of_a_prompt_is_drawn_from_the_machine(drawings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way is one that the machine takes; a machine without evictions is drawn without them."""
    svg = svg_of(drawings.life_of_a_prompt())
    shown = {line for label in texts_of(svg, "label") for line in label.split("\n")}
    ways = drawings.ways_of_a_prompt()
    assert shown == set().union(*ways.values()) - set(drawings.CRASHES)
    assert shown >= {"reserve_batch", "commit_group", "claim", "finish_step", "substitute", "evict", "abort_stale"}
    assert {"unread", "RESERVED", "ready", "claimed", "trained", "dropped", "spare"} <= set(texts_of(svg, "node"))
    without = MACHINES["cut"].varied(())
    without.remove("evict")
    monkeypatch.setitem(drawings.MACHINES, "cut", without)
    assert ("ready", "dropped") in ways
    assert ("ready", "dropped") not in drawings.ways_of_a_prompt.__wrapped__(("windowed",))


@pytest.mark.slow
def test_the_scopes_drawn_have_every_way_that_any_small_scope_has(drawings: Any) -> None:
    """Otherwise a way of a prompt would be missing from the picture."""
    everywhere = drawings.ways_of_a_prompt.__wrapped__(tuple(SMALL["cut"]))
    assert everywhere == drawings.ways_of_a_prompt()


def test_the_matrix_says_what_actions_set(drawings: Any) -> None:
    """Against the effects themselves, called on the plain states of one scope: none of them may be missing."""
    table = drawings.touched("barrier", ("two_rounds", "children"))
    assert set(table) == set(MACHINES["barrier"].actions)
    for _, before, step in drawings.explored("barrier", "children"):
        moved = {name for name, old, new in zip(before._fields, before, step.state, strict=True) if old != new}
        assert moved <= table[step.action.name][1]
    cut = drawings.touched("cut", drawings.SCOPES_OF_A_MATRIX)
    assert set(cut) == set(MACHINES["cut"].actions)
    reads, writes = cut["pass_gate"]
    assert writes == {"gate_passed"}
    assert {"dispatch_cursor", "version"} <= reads


def test_every_drawing_that_a_page_asks_for_is_there_and_every_one_is_asked_for(drawings: Any) -> None:
    """A name mistyped would end the build; one that no page shows is drawn for nobody."""
    asked = {
        name
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"^<!-- draw: (\w+) -->$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert asked == set(drawings.DRAWN)


def test_links_out_of_the_docs_lead_to_pages_and_others_stay(hooks: Any) -> None:
    """A link to nothing is left as it is, so that the build names it."""
    text = "[a](../impl/README.md#x) [b](tutorial.md) [c](../no/such.md) [d](https://x.y) `[e](../impl/README.md)`"
    told = hooks.rewritten(text, "docs/protocol.md", "protocol.md")
    assert "[a](repository/impl-README.md#x)" in told
    assert "[b](tutorial.md)" in told
    assert "[c](../no/such.md)" in told
    assert "[d](https://x.y)" in told
    fenced = "```\n[a](../impl/README.md)\n```"
    assert hooks.rewritten(fenced, "docs/protocol.md", "protocol.md") == fenced


def test_figures_are_shown_with_their_machine_or_said_to_be_absent(figures: Any, tmp_path: Path) -> None:
    """A number without a machine is not shown; a missed bound is told as such."""
    name = next(iter(figures.scripts()))
    rows = [
        {"figure": "fast (ms)", "value": 0.25, "to_reach": "<= 1", "ok": True},
        {"figure": "slow (x)", "value": 0.5, "to_reach": ">= 2", "ok": False},
    ]
    (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    assert "0.25" not in figures.figures(kept=tmp_path)
    assert figures.figures(kept=tmp_path).count("Not recorded") == len(figures.scripts())
    (tmp_path / f"{name}.machine.json").write_text(json.dumps({"processor": "a lathe", "cores": 2}))
    shown = figures.figures(kept=tmp_path)
    assert "processor a lathe, cores 2" in shown
    assert "1 of 2 figures were not reached" in shown
    assert "| slow (x) | 0.5 | ≥ 2 | **no** |" in shown


def test_what_a_memory_reaches_is_computed_from_the_recorded_slopes(drawings: Any, tmp_path: Path) -> None:
    """Doubling with every unit, 64 bytes a state: a GiB more or less is half a unit."""
    reach = importlib.import_module("reach")
    assert "figures.py scale engines" in reach.reach(tmp_path)
    counted = [{"figure": f"states, cut: things = {size}", "value": 2**size} for size in (8, 9, 10)]
    (tmp_path / "scale.json").write_text(json.dumps([*counted, {"figure": "window, 10 groups (ms)", "value": 1}]))
    sizes = [
        {"figure": "arrays, memory above idle, large/features (bytes a state)", "value": 1.0},
        {"figure": "memory above idle, large/features (bytes a state)", "value": 64.0},
    ]
    (tmp_path / "engines.json").write_text(json.dumps(sizes))
    (row,) = [line for line in reach.reach(tmp_path).splitlines() if line.startswith("| cut")]
    # 0.7 of 16 GiB is 2 ** 27.48 states of 64 bytes.
    assert row.split("|")[1:5] == [" cut: things ", " 10 (1,024 states) ", " × 2.00 each ", " 27 "]


def test_what_grows_by_differences_is_not_taken_to_multiply(drawings: Any) -> None:
    """Squares and lines: the member that just has room is found, and the next has none."""
    reach = importlib.import_module("reach")
    assert reach.largest(10, (64, 81, 100), 10_000) == "100"
    assert reach.largest(10, (64, 81, 100), 9_999) == "99"
    assert reach.growth((64, 81, 100)) == "+ 19, and 2 more each time"
    assert reach.largest(3, (10, 20, 30), 1_000) == "100"
    assert reach.largest(3, (10, 30, 30), 1_000) == "any"


def test_recording_an_unknown_script_is_wrong_use(figures: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says what there is."""
    assert figures.main(["no_such"]) == 2
    assert "barrier" in capsys.readouterr().err


def test_recorded_figures_are_whole() -> None:
    """Each table has its machine, and each is that of a script there is."""
    kept = {path.name for path in (ROOT / "docs" / "figures").glob("*.json")}
    tables = {name for name in kept if not name.endswith(".machine.json")}
    assert {name.replace(".json", ".machine.json") for name in tables} == kept - tables
    assert [name for name in tables if not (ROOT / "bench" / name.replace(".json", ".py")).exists()] == []
    for name in tables:
        rows = json.loads((ROOT / "docs" / "figures" / name).read_text(encoding="utf-8"))
        assert all(row.keys() == {"figure", "value", "to_reach", "ok"} for row in rows)


class _Loaded(HTMLParser):
    """What a page makes the browser load, and where it leads."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.loaded.append(given.get("src") or "")
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "preconnect", "modulepreload"):
            self.loaded.append(given.get("href") or "")


def built(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build as `make docs` does."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )


@pytest.mark.parametrize(
    ("link", "status"), [("../examples/adopt_controller.py", 0), ("no-such-page.md", 1), ("../no/such/file.md", 1)]
)
def test_a_link_to_nothing_ends_the_build(link: str, status: int, tmp_path: Path) -> None:
    """With the settings and hooks of the site, on one page: a warning is an error."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text(f"# Home\n\n[there]({link})\n", encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    settings = ["docs_dir: pages", "nav: [index.md]", "extra_css: []", "plugins: []", f"hooks: ['{SITE}/hooks.py']"]
    config.write_text("\n".join([f"INHERIT: '{ROOT}/mkdocs.yml'", *settings]), encoding="utf-8")
    ran = built(config, tmp_path / "site")
    assert ran.returncode == status, ran.stderr
    assert (link in ran.stderr) == bool(status)


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """The build as `make docs` runs it, and every page read for what a browser would fetch."""
    site = tmp_path / "site"
    ran = built(ROOT / "mkdocs.yml", site)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1].startswith("docs: ")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.loaded
        assert [source for source in loaded.loaded if "//" in source] == [], page
    assert "<svg" in (site / "protocol.html").read_text(encoding="utf-8")
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert "fonts.googleapis" not in styles
    reference = (site / "api" / "library.html").read_text(encoding="utf-8")
    assert [name for name in ("CheckpointBarrier", "ReplayBuffer", "DrainTimeout") if name not in reference] == []
