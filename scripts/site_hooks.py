"""What the site needs besides docs/: pages of the repository's root, and links between both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
#: A file of the root → its page.
PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CHANGELOG.md": "changelog.md",
    "packages/pytest-penstock/README.md": "pytest-penstock.md",
}
_LINK: Final = re.compile(r"\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=_relinked(text, Path(source).parent)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    if page.file.src_uri in PAGES.values():
        return markdown
    return _relinked(markdown, Path("docs", page.file.src_uri).parent)


def on_post_build(config: MkDocsConfig) -> None:
    """Remove what no page needs: half of the size."""
    assets = Path(config.site_dir, "assets", "javascripts")
    for pattern in ("**/*.map", "lunr/min/*", "lunr/wordcut.js", "lunr/tinyseg.js"):
        for file in assets.glob(pattern):
            file.unlink()


def _relinked(text: str, folder: Path) -> str:
    """Links between files of the repository become links between pages, or plain text where a file
    has no page."""

    def replaced(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        path, _, anchor = target.partition("#")
        if not path:
            return match[0]
        found = (ROOT / folder / path).resolve().relative_to(ROOT)
        depth = len(folder.parts) - 1 if folder.parts[:1] == ("docs",) else 0
        up = "../" * depth
        if str(found) in PAGES:
            place = up + PAGES[str(found)]
        elif found.parts[0] == "docs":
            place = up + "/".join(found.parts[1:])
        else:
            return label
        return f"[{label}]({place}{'#' + anchor if anchor else ''})"

    fenced = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    fenced[::2] = [_LINK.sub(replaced, part) for part in fenced[::2]]
    return "".join(fenced)
