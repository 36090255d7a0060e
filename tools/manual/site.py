"""The site: pages of the repository and generated ones in one folder, built by Sphinx; each warning is an error.

Its table of contents is that of docs/index.md: each section there becomes a part of the site, each link a page; pages
that no section names come last. A link or an anchor that leads nowhere, and a file that isn't there end the build.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from drkit import __version__
from tools.manual.reference import pages, top_pages

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/index.md"
PAGES = ("docs/*.md", "runbooks/*.md", "bench/*.md", "CHANGELOG.md")
GENERATED = "reference"
FOLDERS = {"docs/schemas": f"{GENERATED}/json.md"}
"""Folders that pages link to, and the page that stands for them on the site."""
_LINK = re.compile(r"(?P<before>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)(?P<after>\))")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")
_FENCE = re.compile(r"^ *(```|~~~)")
_HEADING = re.compile(r"^## (.+)$")
MORE = "More pages"
"""The part for pages that docs/index.md doesn't name."""
_GENERATED_HERE = "Reference"
"""The section of docs/index.md that the generated pages are added to."""


class BrokenLinkError(Exception):
    """A page links to what isn't there; the message begins with the page."""


def build_site(folder: Path) -> int:
    """Build `folder/html`, from `folder/source`; 0 where there was no warning."""
    from sphinx.application import Sphinx  # noqa: PLC0415  # of the extra `docs`
    from sphinx.builders.html import StandaloneHTMLBuilder  # noqa: PLC0415  # as above
    from sphinx.util.docutils import docutils_namespace  # noqa: PLC0415  # as above

    source = folder / "source"
    stage(source)
    html = folder / "html"
    if WEBP not in StandaloneHTMLBuilder.supported_image_types:  # every browser shows it, and pages are links to it
        StandaloneHTMLBuilder.supported_image_types = [*StandaloneHTMLBuilder.supported_image_types, WEBP]
    shutil.rmtree(html, ignore_errors=True)
    with docutils_namespace():
        app = Sphinx(
            srcdir=source,
            confdir=None,
            outdir=html,
            doctreedir=folder / "doctrees",
            buildername="html",
            confoverrides=_SETTINGS,
            freshenv=True,
            warningiserror=True,
            status=None,
        )
        app.build(force_all=True)
    return int(app.statuscode)


WEBP = "image/webp"
_SETTINGS = {
    "project": "drkit",
    "version": __version__,
    "release": __version__,
    "extensions": ["myst_parser"],
    "myst_enable_extensions": ["deflist"],
    "myst_heading_anchors": 4,
    "highlight_language": "text",
    "smartquotes": False,
    "suppress_warnings": ["misc.highlighting_failure"],  # JSON and TOML with `…` in them
    "html_theme": "furo",
    "html_title": f"drkit {__version__}",
    "html_show_copyright": False,
    "html_show_sphinx": False,
    "html_copy_source": False,
    "html_theme_options": {"navigation_with_keys": True},
}


def stage(source: Path) -> None:
    """Put the pages, what they link to, and the generated ones into a folder, in the repository's layout.

    Raises:
        BrokenLinkError: a link leads to no file of the repository.
    """
    shutil.rmtree(source, ignore_errors=True)
    for page in repository_pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        _write(source / page, _relinked(page, text, source))
    generated = pages()
    for name, text in generated.items():
        _write(source / GENERATED / name, text)
    for file in (ROOT / "docs/schemas").glob("*.json"):
        _copy(file, source / "docs/schemas" / file.name)
    _write(source / "index.md", _root_page((ROOT / INDEX).read_text(encoding="utf-8"), source))


def repository_pages() -> list[str]:
    """The pages of the repository, except for the index."""
    found = [str(file.relative_to(ROOT)) for pattern in PAGES for file in sorted(ROOT.glob(pattern))]
    return [page for page in found if page != INDEX]


def links(page: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Links of a page to files of the repository: line, target as written, path of the file from the root."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        if fenced:
            continue
        for found in _LINK.finditer(_without_code(line)):
            target = found["target"]
            if not _ELSEWHERE.match(target):
                path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
                yield number, target, path


def sections(index: str) -> dict[str, list[str]]:
    """The sections of docs/index.md, and the pages that each links to, in their order and once each; then the rest."""
    found: dict[str, list[str]] = {}
    heading, named = "", set()
    for line in index.splitlines():
        if (title := _HEADING.match(line)) is not None:
            heading = title[1]
            found[heading] = []
            continue
        for _, _, path in links(INDEX, line):
            if heading and path.endswith(".md") and path not in named:
                named.add(path)
                found[heading].append(path)
    rest = [page for page in repository_pages() if page not in named]
    return {**found, MORE: rest} if rest else found


def _root_page(text: str, source: Path) -> str:
    """docs/index.md as the site's first page: at the root, with the table of contents."""
    body = _relinked(INDEX, text, source, moved_to="index.md")
    trees = []
    for heading, named in sections(text).items():
        entries = [page.removesuffix(".md") for page in named]
        if heading == _GENERATED_HERE:
            entries = [f"{GENERATED}/{name}" for name in top_pages()] + entries
        trees += ["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *entries, "```"]
    return "\n".join([body.rstrip(), *trees]) + "\n"


def _relinked(page: str, text: str, source: Path, moved_to: str | None = None) -> str:
    """The page with its links as they are on the site; files that it links to are copied.

    Raises:
        BrokenLinkError: a link leads to no file.
    """
    lines = text.splitlines()
    for number, target, path in links(page, text):
        _, separator, anchor = target.partition("#")
        to = FOLDERS.get(path, path)
        if to == INDEX:
            to = "index.md"
        if to == path and not (ROOT / path).is_file():
            raise BrokenLinkError(f"{page}:{number}: {target} leads to no file")
        if to == path and not path.endswith(".md"):
            _copy(ROOT / path, source / path)
        if to == "README.md":  # the site's first page stands for it
            to = "index.md"
        new = posixpath.relpath(to, posixpath.dirname(moved_to if moved_to is not None else page) or ".")
        lines[number - 1] = lines[number - 1].replace(f"]({target})", f"]({new}{separator}{anchor})")
    return "\n".join(lines) + "\n"


def _without_code(line: str) -> str:
    """The line with what stands in `code` blanked, except for links around code."""
    return re.sub(r"`[^`]*`", lambda found: "x" * len(found[0]), line)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)
