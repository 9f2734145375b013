"""The occupancy of a hive as a small picture that other pages embed, if its business allows it.

<img src="https://hives.example/badge/7.svg" alt="Occupancy" height="28">
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from xml.sax.saxutils import escape

from penstock.core.errors import NotFound, PenstockError
from penstock.core.units import parse_count
from penstock_hives.api.problems import PROBLEMS
from penstock_hives.occupancy.models import whole_percent
from penstock_hives.places.models import HiveDetail
from penstock_hives.public.first_view import LEVELS, FirstView, preferred_language
from penstock_hives.public.view import CachedPage, PublicView
from penstock_hives.server.asgi import AsgiApplication, Receive, Scope, Send, get_header

PREFIX: Final = "/badge/"
#: Seconds that browsers and proxies may use a badge for.
_SECONDS: Final = 30
#: A figure that is older is not shown.
_OLDEST: Final = timedelta(minutes=15)
_MAX_NAME: Final = 28
#: Backgrounds by level; the other is for a closed place, and where nothing is known.
_COLOURS: Final = {"quiet": "#2f8f5b", "moderate": "#8a5f00", "busy": "#b84a0c", "full": "#b02a25"}
_PLAIN: Final = "#6d6152"
_SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="28" role="img" aria-label="{label}">
<title>{label}</title>
<rect width="{width}" height="28" rx="14" fill="#2a2117"/>
<path d="M{split} 0h{rest}a14 14 0 0 1 0 28h-{rest}z" fill="{colour}"/>
<path d="M19 6l6.5 3.75v7.5L19 21l-6.5-3.75v-7.5z" fill="#f3b53f"/>
<g fill="#fff" font-family="system-ui,sans-serif" font-size="13" font-weight="600">
<text x="32" y="18.5" textLength="{name_length}" lengthAdjust="spacingAndGlyphs">{name}</text>
<text x="{said_at}" y="18.5" textLength="{said_length}"
 lengthAdjust="spacingAndGlyphs">{said}</text>
</g></svg>
"""


def render_badge(hive: HiveDetail, view: PublicView, first: FirstView, language: str) -> bytes:
    t, figure = first.text(language), hive.occupancy
    colour, said = _PLAIN, t("No current data")
    if not hive.open_now:
        said = first.closed_text(hive, language)
    elif figure is not None and figure.quality != "stale" and view.now - figure.as_of < _OLDEST:
        said = t("{n} person" if figure.occupancy == 1 else "{n} people", n=figure.occupancy)
        if figure.level in _COLOURS:
            colour, said = _COLOURS[figure.level], t(LEVELS[figure.level])
        if figure.percent is not None:
            said = f"{whole_percent(figure.percent)} % · {said}"
    name = hive.name if len(hive.name) <= _MAX_NAME else f"{hive.name[: _MAX_NAME - 1]}…"
    name_length, said_length = 7 * len(name), 7 * len(said)
    split = 32 + name_length + 10
    quoted = escape(f"{hive.name}: {said}", {'"': "&quot;"})
    return _SVG.format(
        width=split + 10 + said_length + 14,
        label=quoted,
        split=split,
        rest=10 + said_length,
        colour=colour,
        name=escape(name),
        name_length=name_length,
        said_at=split + 10,
        said=escape(said),
        said_length=said_length,
    ).encode()


def badge_endpoint(view: PublicView, first: FirstView) -> AsgiApplication:
    """In the language of the browser; 404 unless the business of the hive allows badges."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        file = scope["path"].removeprefix(PREFIX)
        number = parse_count(file.removesuffix(".svg")) if file.endswith(".svg") else None
        try:
            hive = view.detail(number) if number is not None else None
            if hive is None or not hive.badge:
                raise NotFound(f"hive {file.removesuffix('.svg')[:20]} has no badge")
        except PenstockError as error:
            await PROBLEMS.from_error(error)(scope, receive, send)
            return
        accepted = get_header(scope, b"accept-language") or b""
        language = preferred_language(accepted.decode("latin-1"))
        page = CachedPage(
            render_badge(hive, view, first, language),
            view.snapshot.as_of,
            content_type=b"image/svg+xml",
            caching=f"public, max-age={_SECONDS}".encode(),
            more=[
                (b"content-security-policy", b"default-src 'none'"),
                (b"cross-origin-resource-policy", b"cross-origin"),
                (b"vary", b"accept-language"),
            ],
        )
        zipped = b"gzip" in (get_header(scope, b"accept-encoding") or b"")
        await page.send(send, get_header(scope, b"if-none-match"), zipped)

    return application
