"""A benchmark writes its own chapter of the page and leaves the others as they are."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.page import put_chapter

ONE = "# One\n\nfirst\n\n## Load\n\n| a |\n"
TWO = "# Two\n\nsecond\n"


def test_the_first_chapter_makes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"

    put_chapter(page, ONE)

    assert page.read_text() == ONE


def test_another_chapter_comes_behind(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(ONE)

    put_chapter(page, TWO)

    assert page.read_text() == ONE + "\n" + TWO


def test_a_chapter_is_replaced_where_it_stands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("foreword\n\n" + ONE + "\n" + TWO)

    put_chapter(page, "# One\n\nanew\n")

    assert page.read_text() == "foreword\n\n# One\n\nanew\n\n" + TWO


def test_writing_the_same_again_changes_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(ONE + "\n" + TWO)

    put_chapter(page, ONE)
    put_chapter(page, TWO)

    assert page.read_text() == ONE + "\n" + TWO
