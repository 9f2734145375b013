"""A page of several benchmarks: each has a chapter, and writes that and no other."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path


def put_chapter(page: Path, chapter: str) -> None:
    """Put a chapter, which begins with its heading, in place of the one it was, or at the end."""
    title = chapter.splitlines()[0]
    old = _chapters(page.read_text()) if page.exists() else {}
    old[title] = chapter.strip() + "\n"
    page.write_text("\n".join(old.values()))


def _chapters(text: str) -> dict[str, str]:
    """By heading, in their order; what stands before the first has none."""
    found: dict[str, str] = {}
    title = ""
    for is_heading, lines in groupby(text.splitlines(), lambda line: line.startswith("# ")):
        words = "\n".join(lines)
        if is_heading:
            title = words
            found[title] = words + "\n"
        elif words.strip():
            found[title] = found.get(title, "") + words.rstrip() + "\n"
    return found
