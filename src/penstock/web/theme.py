"""How the dashboards look: a style sheet, a few colours, a mark.

Colours are variables of the style sheet, one set for light and one for dark. Charts are drawn on
canvases that do not see those: `INK` reads on both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nicegui import app, ui

from penstock import __version__

#: A gate in a channel, and the water behind it.
LOGO: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="28" height="28"'
    ' fill="none">'
    '<rect width="32" height="32" rx="8" fill="#0c7f94"/>'
    '<path d="M4 19c2.4-2.6 5-2.6 7.4 0M20.6 23c2.4-2.6 5-2.6 7.4 0" stroke="#a5eef7"'
    ' stroke-width="2.4" stroke-linecap="round"/>'
    '<path d="M4 13.5c2.4-2.6 5-2.6 7.4 0" stroke="#fff" stroke-width="2.4"'
    ' stroke-linecap="round"/>'
    '<path d="M16 5v16" stroke="#fff" stroke-width="3.6" stroke-linecap="round"/>'
    '<path d="M12.5 5h7" stroke="#fff" stroke-width="2.4" stroke-linecap="round"/></svg>'
)
FAVICON: Final = LOGO
_PLACE: Final = "/static"

ACCENT: Final = "#0c8fa6"
HUMAN_COLOUR: Final = "#e07a3f"
ANIMAL_COLOUR: Final = "#2f9e8f"
#: Text and lines of charts, by light and by dark.
INK: Final = "#8294a6"
LINE: Final = "rgba(130, 148, 166, 0.25)"


def install() -> None:
    """For all pages."""
    app.add_static_files(_PLACE, Path(__file__).with_name("static"))
    link = f'<link rel="stylesheet" href="{_PLACE}/theme.css?{__version__}">'
    ui.add_head_html(link, shared=True)
    app.colors(primary=ACCENT, positive="#2b9a66", negative="#d64545", warning="#d9902f")
