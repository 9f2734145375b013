"""`docs/configuration.md` says what the models say."""

from __future__ import annotations

from scripts.configuration_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "`make docs` writes it anew"
