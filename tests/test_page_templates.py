"""Every page is made of a template by jinja2 with autoescape, and parsed before it is written."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from interleavings.report import markup
from interleavings.report.markup import PageRefused, checked, rendered
from interleavings.report.page import Page, PageStep, Standing, html_of

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = '</style></title><script>hit()</script><b onclick="hit()" \'>{{ 7 * 7 }}{% raw %}\u202e\x1b\ud800&amp;_/'
FOLDERS = ("spec", "impl", "interleavings", "proofs", "cleancut", "docs", "bench", "examples")
#: Python that writes an element: a tag at the beginning of a text or behind another, with attributes or closed.
MARKUP = re.compile(
    r"</?(?:[a-z][a-z0-9]*(?: [a-z-]+=[^>]*)?)/?>.*</[a-z]|<!doctype|<(?:div|span|table|svg|html|script) "
)


class Shown(HTMLParser):
    """The elements of a page and the texts in it and in its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(" ".join([tag, *(name for name, _ in attrs)]))
        self.texts += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def a_page(text: str) -> str:
    """A page with the text in every field that is anybody's."""
    standing = (Standing(text, text, "ready", concerned=True),)
    step = PageStep(text, text, text, text, text, (text,), standing, standing, "open", (text, text))
    return html_of(
        Page(text, text, text, text, [text], [(text, text)], [step], standing, "asked", [text], [(text, [text])], text)
    )


def without_breaks(elements: list[str]) -> list[str]:
    return [each for each in elements if each != "wbr"]


def test_case_G30_no_field_of_a_page_brings_an_element_or_an_attribute() -> None:
    """The page of a hostile trace has the elements of a harmless one, and shows the hostile text as it is."""
    hostile, harmless = Shown(a_page(HOSTILE)), Shown(a_page("x"))
    assert without_breaks(hostile.elements) == without_breaks(harmless.elements)
    assert any("{{ 7 * 7 }}{% raw %}" in text and "<script>hit()" in text for text in hostile.texts)
    assert all(each.isprintable() or each == "\n" for text in hostile.texts for each in text)


def test_a_page_without_escaping_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: with autoescape off the check of the finished page refuses it."""
    right = markup._environment.__wrapped__  # one of its own, since the mutant changes it

    def wrong(folder: Path) -> object:
        environment = right(folder)
        environment.autoescape = False
        return environment

    monkeypatch.setattr(markup, "_environment", wrong)
    with pytest.raises(PageRefused, match="Please report it"):
        a_page(HOSTILE)
    monkeypatch.setattr(markup, "checked", lambda text: text)
    assert Shown(a_page(HOSTILE)).elements.count("script") > 1


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<p>a<b></p>", "closes 'p'"),
        ("<p>a", "leaves 'p' open"),
        ("</p>", "closes 'p'"),
        ('<p onclick="x()">a</p>', "holds onclick="),
        ('<a href="javascript:x()">a</a>', "holds href="),
        ('<img src="//there/a.png">', "holds src="),
    ],
)
def test_a_page_that_is_not_as_its_template_says_is_refused(page: str, said: str) -> None:
    """A text that slipped through would be found before anything is written."""
    with pytest.raises(PageRefused, match=re.escape(said)):
        checked(page)
    assert checked('<p>a<br><a href="#b">b</a> <a href="traces/c.html">c</a></p>')


def test_what_a_template_lacks_is_an_error() -> None:
    """A field that was renamed would leave a blank in every page."""
    with pytest.raises(Exception, match="undefined"):
        rendered("trace.html.jinja", lanes=[], rows=[], many=False)


def templates() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("templates/*.jinja"))


def faults_of_template(text: str) -> list[str]:
    """The ways round escaping that a template could take."""
    return re.findall(r"\|\s*safe\b|autoescape|Markup|xmlattr|\btojson\b|\|\s*urlize", text)


def test_no_template_goes_round_the_escaping() -> None:
    """Autoescape guards nothing where a template says `safe`; the mutants are such templates."""
    assert len(templates()) >= 5
    assert [path for path in templates() if faults_of_template(path.read_text())] == []
    for wrong in ("{{ a | safe }}", "{{ a|safe }}", "{% autoescape false %}", "{{ Markup(a) }}"):
        assert faults_of_template(wrong), wrong


def markup_in(source: str) -> list[int]:
    """The lines where Python puts together markup itself, or makes a text pass for markup."""
    tree = ast.parse(source)
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(p.value if isinstance(p, ast.Constant) else "x" for p in node.values)  # type: ignore[misc]
            if MARKUP.search(text):
                found.append(node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            if MARKUP.search(node.value):
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Markup":
            found.append(node.lineno)
    return found


def test_no_python_writes_markup_itself() -> None:
    """Every generator of pages goes through the templates; the mutants are builders such as there were."""
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := markup_in(path.read_text()))
    }
    assert found == {}
    for wrong in ('f"<li>{a}</li>"', "'<div class=\"x\">' + a", "Markup(a)", "a = '<!doctype html>'"):
        assert markup_in(wrong), wrong


@pytest.mark.parametrize(
    "package", ["impl", "spec", "interleavings", "interleavings.command_line", "spec.command.command_line"]
)
def test_jinja2_loads_only_with_what_writes_pages(package: str) -> None:
    """Whoever explores or saves pays nothing for pages, and needs no extra for them."""
    program = f"import sys, {package}; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
