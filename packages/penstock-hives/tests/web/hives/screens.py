"""How people look at pages, unless a test says otherwise.

A fixture with `params=SCREENS` runs all tests that use it once for each screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, StorageState

from tests.web import browsing
from tests.web.browsing import WIDE


class Screen(NamedTuple):
    size: tuple[int, int]
    shade: str


DESKTOP: Final = Screen(WIDE, "light")
SCREENS: Final = (pytest.param(DESKTOP, id="desktop"),)
_shown: list[Screen] = [DESKTOP]


@contextmanager
def on_screen(screen: Screen) -> Iterator[None]:
    _shown.append(screen)
    try:
        yield
    finally:
        _shown.pop()


def looking(
    browser: Browser,
    url: str,
    size: tuple[int, int] | None = None,
    shade: str | None = None,
    known: StorageState | None = None,
    **more: Any,
) -> AbstractContextManager[Page]:
    """As on the screen of this run, unless a test says otherwise."""
    screen = _shown[-1]
    size, shade = size or screen.size, shade or screen.shade
    return browsing.looking(browser, url, size, shade, known, **more)
