"""Whether what is written can be read: contrast as WCAG 2 counts it, of a page as it is drawn.

A word needs 4.5 to 1 against what it stands on, a large one 3 to 1 (AA).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Colours are whatever CSS allows, so a canvas is asked what they are as pixels; what stands on
# something half transparent stands on all that is behind it.
_FAINT = r"""() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const pixel = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [red, green, blue], alpha: alpha / 255 };
  };
  const over = (top, below) => top.rgb.map((part, at) => part * top.alpha + below[at] * (1 - top.alpha));
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      layers.push(pixel(getComputedStyle(each).backgroundColor));
      if (layers.at(-1).alpha === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [red, green, blue] = rgb.map((part) => part / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const faint = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const seen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!words || !seen || element.closest("svg, .hidden, noscript")) continue;
    const style = getComputedStyle(element), behind = ground(element);
    const [low, high] = [light(over(pixel(style.color), behind)), light(behind)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) faint.add(`${element.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return [...faint];
}"""  # noqa: E501


def faint(page: Page) -> list[str]:
    """Words that are too pale to read, each with its contrast."""
    found: list[str] = page.evaluate(_FAINT)
    return found
