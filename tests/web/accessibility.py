"""What keeps people with disabilities out of a page: by axe-core, and by keys alone."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: As a label, or as what stands in it; icons of the dashboards are words in a font of their own.
_FOCUSED = """() => {
  const at = document.activeElement;
  const text = () => [...at.querySelectorAll(".q-icon, .material-icons")]
    .reduce((all, icon) => all.replace(icon.textContent, ""), at.textContent).trim();
  return at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent.trim() ?? text();
}"""


@cache
def _axe() -> str:
    import axe_core_python  # type: ignore[import-untyped]

    return Path(axe_core_python.__file__).with_name("axe.min.js").read_text()


#: Colours in between are nobody's choice; some animations never end.
_SETTLED = """Promise.allSettled(document.getAnimations()
  .filter((each) => each.effect.getComputedTiming().iterations !== Infinity)
  .map((each) => each.finished))"""


def serious_findings(page: Page) -> list[tuple[str, str, list[str]]]:
    """The path, the rule and the elements of what axe-core calls serious or critical."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe())
    page.evaluate(_SETTLED)
    result = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    path = page.evaluate("location.pathname + location.hash")
    return [
        (path, each["id"], [node["html"][:120] for node in each["nodes"]])
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def tab_to(page: Page, name: str | re.Pattern[str]) -> None:
    """Press Tab until what has this name has the focus."""
    matches = name.search if isinstance(name, re.Pattern) else name.__eq__
    for _ in range(60):
        page.keyboard.press("Tab")
        if matches(page.evaluate(_FOCUSED)):
            return
    raise AssertionError(f"{name} is not reached")
