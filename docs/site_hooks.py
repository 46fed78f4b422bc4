"""Hooks of mkdocs: pages of the repository outside docs/ are pages of the site, and links between them hold in both.

A link such as `../zoo/README.md` is written for readers of the repository. In the site that page lies under
`repository/`, so the link is written anew. A link to code becomes the name of the file, since the site has no code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parent.parent
_PAGES = ("*.md", *(f"{folder}/**/*.md" for folder in ("benchmarks", "datasets", "mlflow", "profiling", "zoo")))
_LINK = re.compile(r"(?P<text>!?\[(?:[^\]\[]|\[[^\]]*\])*\])\((?P<target>[^)\s]+)\)")


def _outside() -> Iterator[str]:
    """Paths of pages and pictures outside docs/, relative to the repository."""
    for pattern in _PAGES:
        for page in _ROOT.glob(pattern):
            yield page.relative_to(_ROOT).as_posix()
            for link in _LINK.finditer(page.read_text(encoding="utf-8")):
                picture = Path(os.path.normpath(page.parent / link["target"]))
                if picture.suffix in (".png", ".svg") and picture.is_file() and _ROOT / "docs" not in picture.parents:
                    yield picture.relative_to(_ROOT).as_posix()


def _in_site(path: str) -> str:
    """Where a file of the repository lies in the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def _in_repository(path: str) -> str:
    """Where a file of the site lies in the repository."""
    return path.removeprefix("repository/") if path.startswith("repository/") else f"docs/{path}"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures outside docs/, and the icon of the page of the service."""
    files.append(File.generated(config, "icon.svg", abs_src_path=str(_ROOT / "joulecast/service/static/icon.svg")))
    for path in sorted(set(_outside())):
        files.append(File.generated(config, _in_site(path), abs_src_path=str(_ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Write links anew that lead out of docs/, or into it from outside."""
    here = PurePosixPath(_in_repository(page.file.src_uri)).parent

    def anew(link: re.Match[str]) -> str:
        mark, text = link["text"].split("[", 1)
        text = f"{mark}[{_LINK.sub(anew, text[:-1])}]"  # a picture that is a link has a link inside
        target, _, anchor = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return f"{text}({link['target']})"
        path = os.path.normpath(here / target).replace(os.sep, "/")
        if (_ROOT / path).is_dir():
            path = f"{path}/README.md"
        found = files.get_file_from_path(_in_site(path))
        if found is None:
            inside = (_ROOT / path).exists() or path.endswith("/README.md")
            return text.lstrip("!")[1:-1] if inside else f"{text}({link['target']})"
        moved = os.path.relpath(found.src_uri, PurePosixPath(page.file.src_uri).parent).replace(os.sep, "/")
        return f"{text}({moved}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(anew, markdown)


_SHIM = re.compile(r'<script src="https://unpkg\.com/[^"]*"></script>')


_DIALOG = 'data-md-component="search" role="dialog"'  # which the theme gives no name that a screen reader could say


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Put our own few lines in place of a script from another server: search in a folder, names of what scrolls."""
    script = (Path(config["docs_dir"]) / "site.js").read_text(encoding="utf-8")
    named = output.replace(_DIALOG, f'{_DIALOG} aria-label="Search"')
    return _SHIM.sub(lambda _: f"<script>{script}</script>", named)
