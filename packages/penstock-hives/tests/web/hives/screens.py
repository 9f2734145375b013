"""How people look at pages: on a desktop or a phone, in light or dark, or with a keyboard only.

A module whose tests take the fixture `screen` with `SCREENS` runs once for each screen: on the
desktop in light always, on the others with the slow tests. With the keyboard, clicks and fills of a
test become presses of keys: Tab until the element has the focus, then Enter, Space, arrows or the
text. What cannot be reached that way fails the test, and so does what axe-core calls serious on the
page that a test leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pytest
from playwright.sync_api import Browser, ElementHandle, Locator, Page, StorageState

from tests.web import browsing
from tests.web.accessibility import serious_findings
from tests.web.browsing import NARROW, PATIENCE, WIDE


class Screen(NamedTuple):
    size: tuple[int, int]
    shade: str
    by_keys: bool = False


DESKTOP: Final = Screen(WIDE, "light")
SCREENS: Final = (
    pytest.param(DESKTOP, id="desktop"),
    pytest.param(Screen(WIDE, "dark"), id="desktop-dark", marks=pytest.mark.slow),
    pytest.param(Screen(NARROW, "light"), id="phone", marks=pytest.mark.slow),
    pytest.param(Screen(NARROW, "dark"), id="phone-dark", marks=pytest.mark.slow),
    pytest.param(Screen(WIDE, "light", by_keys=True), id="keys", marks=pytest.mark.slow),
    pytest.param(Screen(WIDE, "dark", by_keys=True), id="keys-dark", marks=pytest.mark.slow),
)
#: Of a page that a test only looks at.
SIZES_AND_SHADES: Final = (
    pytest.param(WIDE, "light", id="desktop"),
    pytest.param(NARROW, "dark", id="phone-dark"),
    pytest.param(WIDE, "dark", id="desktop-dark", marks=pytest.mark.slow),
    pytest.param(NARROW, "light", id="phone", marks=pytest.mark.slow),
)
_shown: list[Screen] = [DESKTOP]


@contextmanager
def on_screen(screen: Screen) -> Iterator[None]:
    _shown.append(screen)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if screen.by_keys:
                for name, press in _KEYS.items():
                    patch.setattr(Locator, name, press)
            yield
    finally:
        _shown.pop()


@contextmanager
def looking(
    browser: Browser,
    url: str,
    size: tuple[int, int] | None = None,
    shade: str | None = None,
    known: StorageState | None = None,
    **more: Any,
) -> Iterator[Page]:
    """As on the screen of this run, unless a test says otherwise."""
    screen = _shown[-1]
    size, shade = size or screen.size, shade or screen.shade
    with browsing.looking(browser, url, size, shade, known, **more) as page:
        yield page
        if more.get("java_script_enabled", True) and page.evaluate(_IS_HTML):
            assert serious_findings(page) == []


_IS_HTML: Final = "document.documentElement.tagName === 'HTML' && location.origin !== 'null'"


#: More than a page has that can have the focus.
_MOST_TABS: Final = 250
_HAS_FOCUS: Final = """(wanted) => {
  const at = document.activeElement;
  return wanted === at || (wanted.contains(at) && wanted.matches(".q-field, label"));
}"""
_KIND: Final = """(found) => {
  const role = found.getAttribute("role");
  if (role === "option") return role;
  return found.tagName === "INPUT" ? found.type : found.tagName.toLowerCase();
}"""


def _reach(locator: Locator) -> ElementHandle:
    """Tab until it has the focus."""
    found = locator.element_handle(timeout=PATIENCE)
    found.wait_for_element_state("enabled", timeout=PATIENCE)
    page = locator.page
    for _ in range(_MOST_TABS):
        if not found.evaluate("(found) => found.isConnected"):  # the page was drawn anew
            found = locator.element_handle(timeout=PATIENCE)
        if found.evaluate(_HAS_FOCUS):
            return found
        page.keyboard.press("Tab")
    raise AssertionError(f"{locator} is not reached by Tab")


def _choose_option(locator: Locator, found: ElementHandle) -> None:
    """In the open list of a field."""
    for _ in range(_MOST_TABS):
        if "q-manual-focusable--focused" in (found.get_attribute("class") or ""):
            locator.page.keyboard.press("Enter")
            return
        locator.page.keyboard.press("ArrowDown")
    raise AssertionError(f"{locator} is not reached by arrows")


def _click(locator: Locator, **options: Any) -> None:
    found = locator.element_handle(timeout=PATIENCE)
    kind = found.evaluate(_KIND)
    if kind == "option":
        _choose_option(locator, found)
        return
    _reach(locator)
    locator.page.keyboard.press("Space" if kind in ("checkbox", "radio") else "Enter")


def _check(locator: Locator, **options: Any) -> None:
    found = locator.element_handle(timeout=PATIENCE)
    keyboard = locator.page.keyboard
    if found.evaluate(_KIND) != "radio":
        _reach(locator)
        if not found.is_checked():
            keyboard.press("Space")
        return
    group = f"input[type=radio][name={found.get_attribute('name')}]"
    for _ in range(_MOST_TABS):
        if locator.page.evaluate(f"document.activeElement.matches('{group}')"):
            break
        keyboard.press("Tab")
    keyboard.press("Space")
    for _ in range(_MOST_TABS):
        if found.is_checked():
            return
        keyboard.press("ArrowRight")
    raise AssertionError(f"{locator} is not reached by arrows")


def _uncheck(locator: Locator, **options: Any) -> None:
    if _reach(locator).is_checked():
        locator.page.keyboard.press("Space")


def _fill(locator: Locator, value: str, **options: Any) -> None:
    kind = _reach(locator).evaluate(_KIND)
    keyboard = locator.page.keyboard
    if kind in ("date", "datetime-local", "time"):
        _type_moment(locator, kind, value)
        return
    keyboard.press("Control+a")
    if value:
        keyboard.type(value)
    else:
        keyboard.press("Delete")


def _type_moment(locator: Locator, kind: str, value: str) -> None:
    """Part by part, as Chromium shows it to an American."""
    keyboard = locator.page.keyboard
    day, _, clock = value.partition("T") if kind != "time" else ("", "", value)
    if day:
        year, month, number = day.split("-")
        keyboard.type(f"{month}{number}{year}")
    if clock:
        if day:
            keyboard.press("ArrowRight")
        hour, minute = map(int, clock.split(":"))
        keyboard.type(f"{hour % 12 or 12:02}{minute:02}{'AP'[hour >= 12]}")


def _select(locator: Locator, value: str, **options: Any) -> None:
    found = _reach(locator)
    label = found.evaluate(
        "(found, value) => [...found.options].find((each) => each.value === value).label", value
    )
    locator.page.keyboard.type(label)


_KEYS: Final = {
    "click": _click,
    "check": _check,
    "uncheck": _uncheck,
    "fill": _fill,
    "select_option": _select,
}
