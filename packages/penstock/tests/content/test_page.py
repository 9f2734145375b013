"""The examples of the page do what it says."""

from __future__ import annotations

import doctest

from tests.paths import DOCS

PAGE = DOCS / "content.md"


def test_the_examples_of_the_page() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")

    assert tried > 20
    assert not failed


def test_the_example_of_the_package() -> None:
    import penstock.content

    assert not doctest.testmod(penstock.content).failed
