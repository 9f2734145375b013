"""Links and paths in the documentation lead to files, and to headings that exist."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.paths import DOCS, ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("packages/*/README.md")],
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
#: A file of the repository in backticks. `*` stands for several, and names in capitals for any.
PATH = re.compile(r"`((?:packages|benchmarks|scripts|docs|tests)/[a-z0-9_./-]+\.[a-z]+)`")


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub names them in links."""
    text = FENCED.sub("", page.read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        for heading in HEADING.findall(text)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    broken = []
    for link in LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            broken.append(link)
    broken += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert not broken
