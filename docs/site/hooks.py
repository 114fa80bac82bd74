"""What mkdocs calls while it builds the site: draws what a page asks for, and takes files of the repository in.

<!-- draw: NAME -->       in a page becomes the drawing or table of that name, made from `spec` at build time
<!-- figures -->          becomes the recorded figures of `bench/`, and `<!-- figures: NAME -->` those of one script
<!-- reach -->            becomes the table of how far enumeration reaches, computed from them
[text](../impl/README.md) a link out of `docs` leads to a page made of that file, so that the site needs no network
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT)]

from figures import figures  # noqa: E402
from protocol_drawings import DRAWN  # noqa: E402
from reach import reach  # noqa: E402

TAKEN_IN = "repository"
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash"}
LINK = re.compile(r"(?<!\!)\]\(([^)#\s]+)(#[^)\s]*)?\)")
ASKED = re.compile(r"^<!-- draw: (\w+) -->$", re.MULTILINE)
FIGURES = re.compile(r"^<!-- figures(?:: (\w+))? -->$", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)


def target_of(link: str, page: str) -> str | None:
    """The file of the repository that a link in a page means, as a path from the root; None for the network."""
    if "://" in link or link.startswith(("/", "mailto:")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(path: str) -> str | None:
    """Where a file of the repository stands in the site, as a path below `docs`; None where it does not."""
    if path.startswith("docs/") and path.endswith(".md"):
        return path.removeprefix("docs/")
    target = ROOT / path
    if target.is_dir():
        return site_path(f"{path}/README.md") if (target / "README.md").is_file() else None
    if not target.is_file():
        return None
    plain = path.removesuffix(".md")
    # README.md would become the index of its folder, which a folder of the site may have already.
    return f"{TAKEN_IN}/{plain.replace('/', '-').lstrip('.')}.md"


def links_of(text: str) -> list[str]:
    """The links of a page outside its code."""
    return [found[1] for found in LINK.finditer(CODE.sub("", text))]


def source_of(path: str) -> str:
    """A file of the repository as the text of a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(Path(path).suffix, "")
    return f"# {path}\n\n~~~~{language}\n{text}\n~~~~\n"


def rewritten(text: str, page: str, here: str) -> str:
    """A page whose links lead to pages of the site. `page` is its file, `here` its place below `docs`."""

    def lead(found: re.Match[str]) -> str:
        target = target_of(found[1], page)
        if target is None:
            return found[0]
        there = site_path(target)
        if there is None:
            # A folder without a page: its name says enough.
            return "](#)" if (ROOT / target).exists() else found[0]
        return f"]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{found[2] or ''})"

    pieces, end = [], 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(lead, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, LINK.sub(lead, text[end:])])


def on_startup(**_: Any) -> None:
    """Keep the terminal to warnings. Not by `--quiet`: with that mkdocs counts none, and none would be an error."""
    for handler in logging.getLogger("mkdocs").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.WARNING)


def on_files(files: Any, config: Any) -> Any:
    """Take every file of the repository in that a page links to, and those that they link to."""
    waiting = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    there: set[str] = set()
    while waiting:
        page, text = waiting.pop()
        for link in links_of(text):
            target = target_of(link, page)
            if target is None or target.startswith(("docs/", "..")):
                continue
            if (ROOT / target).is_dir():
                target += "/README.md"
            place = site_path(target)
            if place is None or place in there or not (ROOT / target).is_file():
                continue
            there.add(place)
            source = source_of(target)
            files.append(File.generated(config, place, content=rewritten(source, target, place)))
            if target.endswith(".md"):
                waiting.append((target, source))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put in what the page asks for."""
    here = page.file.src_uri
    if here.startswith(f"{TAKEN_IN}/"):
        return markdown
    text = ASKED.sub(lambda found: DRAWN[found[1]](), markdown)
    text = FIGURES.sub(lambda found: figures(found[1]), text)
    text = re.sub(r"^<!-- reach -->$", lambda _: reach(), text, flags=re.MULTILINE)
    return rewritten(text, f"docs/{here}", here)


def on_post_build(config: Any) -> None:
    """Say where the site is; the last line of `make docs`."""
    pages = sum(len([name for name in names if name.endswith(".html")]) for _, _, names in os.walk(config["site_dir"]))
    print(f"docs: {pages} pages in {os.path.relpath(config['site_dir'], ROOT)}")
