"""The first view of the public page, rendered here: the list of places stands in the HTML.

A phone shows it as soon as the HTML has arrived, before any script; without scripts there is
nothing else to see. The page's modules then draw the same list from the data that comes with it.
The language is one that the browser prefers. Texts are those of the page (`languages/*.json`).
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from html import escape
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock_hives.encoding import encode_json
from penstock_hives.occupancy.models import whole_percent
from penstock_hives.places.models import HiveDetail, HiveSummary
from penstock_hives.public.reader import PublicReader
from penstock_hives.public.view import LIST_SECONDS, CachedPage, PublicView
from penstock_hives.server.asgi import AsgiApplication, Headers, Receive, Scope, Send, get_header

#: The queries of the first list, as `places.js` asks them.
_ASKED: Final = {"hives": "limit=48&sort=name", "hive-types": "", "deals": "limit=100"}
#: Places in the HTML: more than a screen has; the modules draw all.
_RENDERED: Final = 24
_DAYS: Final = {
    "en": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "de": ("Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"),
    "fr": ("lun", "mar", "mer", "jeu", "ven", "sam", "dim"),
}
_HEXAGON: Final = "M50 3 91 26.5v47L50 97 9 73.5v-47Z"
#: Levels in the words of the page.
LEVELS: Final = {"quiet": "Quiet", "moderate": "Moderate", "busy": "Busy", "full": "Full"}
_TRENDS: Final = {"rising": "↗", "falling": "↘"}
_RELATIONS: Final = {
    "quieter": "less busy than usual",
    "as_usual": "as usual",
    "busier": "busier than usual",
}
_MAIN: Final = '<main id="main" tabindex="-1"></main>'
_STYLE: Final = '<link rel="stylesheet" href="/style.css" />'


class FirstView:
    """For one event loop. `files` are those of the page, by path."""

    def __init__(self, view: PublicView, files: Mapping[str, bytes]) -> None:
        self._view = view
        self._reader = PublicReader(view)
        style = files["/style.css"].decode()
        html = files["/index.html"].decode()
        script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
        #: What a content security policy must allow: the only inline parts.
        self.style_hash = _hash(style)
        self.script_hash = _hash(script[1] if script else "")
        inlined = html.replace(_STYLE, f"<style>{style}</style>")
        self._texts: dict[str, dict[str, str]] = {"en": {}}
        for language in _DAYS.keys() - {"en"}:
            self._texts[language] = json.loads(files[f"/languages/{language}.json"])
        self._html = {
            language: _translate(inlined, language, self.text(language)) for language in _DAYS
        }
        self._pages: dict[str, CachedPage] = {}

    def page(self, accepted: str, headers: Headers) -> CachedPage | None:
        """By the header Accept-Language; None while there is nothing to show."""
        if not self._view.has_snapshot:
            return None
        language = preferred_language(accepted)
        page, now = self._pages.get(language), asyncio.get_running_loop().time()
        if page is None or now >= page.until:
            body = self._html[language].replace(_MAIN, self._main(language))
            page = self._pages[language] = CachedPage(
                body.encode(),
                self._view.snapshot.as_of,
                content_type=b"text/html; charset=utf-8",
                caching=b"no-cache",
                more=[*headers, (b"vary", b"accept-language")],
                until=now + LIST_SECONDS,
            )
        return page

    def text(self, language: str) -> Callable[..., str]:
        """A function that translates texts of the page and fills in values."""
        texts = self._texts[language]

        def text(english: str, **values: Any) -> str:
            found = texts.get(english, english)
            for name, value in values.items():
                found = found.replace(f"{{{name}}}", str(value))
            return found

        return text

    def _main(self, language: str) -> str:
        t = self.text(language)
        found = {name: self._reader.find(f"/v1/{name}", query) for name, query in _ASKED.items()}
        data = {name: json.loads(page.body) for name, page in found.items() if page is not None}
        hives = [self._view.summary(each["id"]) for each in data["hives"]["items"]]
        number = t("{n} place" if len(hives) == 1 else "{n} places", n=len(hives))
        shown = t("More than {places}", places=number) if data["hives"]["next"] else number
        chips = [t("By name"), t("Open now"), t("All"), *(t(x["name"]) for x in data["hive-types"])]
        cards = "".join(self._card(hive, t, language) for hive in hives[:_RENDERED])
        carried = encode_json(data).decode().replace("<", "\\u003c")
        return (
            f'<main id="main" tabindex="-1"><h1>{escape(t("How busy is it right now?"))}</h1>'
            f'<p class="soft">{escape(shown)}</p><div class="filters" aria-hidden="true">'
            + "".join(f'<span class="chip still">{escape(chip)}</span>' for chip in chips)
            + '</div><svg width="0" height="0" aria-hidden="true" class="defined">'
            f'<clipPath id="hexagon"><path d="{_HEXAGON}"/></clipPath></svg>'
            f'<ul class="places">{cards}</ul></main>'
            f'<script type="application/json" id="first">{carried}</script>'
        )

    def _card(self, hive: HiveSummary, t: Callable[..., str], language: str) -> str:
        level, percent, value, words = self._said(hive, t, language)
        city = hive.address.city if hive.address else ""
        where = " · ".join(filter(None, (t(hive.type_name), city)))
        return (
            f'<li class="place" data-hive="{hive.id}" data-level="{level}">'
            f'<div class="cell" aria-hidden="true" data-level="{level}">'
            f'<svg viewBox="0 0 100 100"><path class="wall" d="{_HEXAGON}"/>'
            f'<rect class="fill" width="100" height="{percent:.0f}" y="{100 - percent:.0f}" '
            f'clip-path="url(#hexagon)"/></svg><b>{value}</b></div>'
            f'<div><h2><a href="#/hive/{hive.id}">{escape(hive.name)}</a></h2>'
            f'<p class="soft small">{escape(where)}</p>'
            f'<p class="says">{words}</p></div></li>'
        )

    def _said(
        self, hive: HiveSummary, t: Callable[..., str], language: str
    ) -> tuple[str, float, str, str]:
        """The level, how far the cell is filled, what stands in it, and the words beside it."""
        figure = hive.occupancy
        if not hive.open_now:
            return "closed", 0.0, "–", _span("level", self.closed_text(hive, language))
        if figure is None:
            return "stale", 0.0, "–", _span("level", t("No data"))
        filled = min(100.0, figure.percent or 0.0)
        if figure.quality == "stale":
            return "stale", filled, "?", _span("level", t("No current data"))
        value = str(figure.occupancy)
        if figure.percent is not None:
            value = f"{whole_percent(figure.percent)}<small>%</small>"
        people = t("{n} person" if figure.occupancy == 1 else "{n} people", n=figure.occupancy)
        words = [_span("level", t(LEVELS[figure.level]) if figure.level else people)]
        if figure.trend in _TRENDS:
            words.append(_span("soft", _TRENDS[figure.trend]))
        if figure.usual:
            words.append(_span("than", t(_RELATIONS[figure.usual.relation])))
        return figure.level or "open", filled, value, "".join(words)

    def closed_text(self, hive: HiveSummary | HiveDetail, language: str) -> str:
        """When it opens, in its local time."""
        t = self.text(language)
        if hive.changes_at is None:
            return t("Closed")
        zone = ZoneInfo(hive.time_zone)
        at, today = hive.changes_at.astimezone(zone), self._view.now.astimezone(zone).date()
        day = "" if at.date() == today else f"{_DAYS[language][at.weekday()]} "
        return t("Closed, opens {time}", time=f"{day}{at:%H:%M}")


def preferred_language(accepted: str) -> str:
    """Of an Accept-Language header; the order counts, weights are in that order."""
    for each in accepted.split(","):
        if (language := each.strip()[:2].lower()) in _DAYS:
            return language
    return "en"


def _span(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>'


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _translate(html: str, language: str, t: Callable[..., str]) -> str:
    """Texts marked with `data-t`; the English one stays in the attribute, for `translatePage`."""

    def element(found: re.Match[str]) -> str:
        text = " ".join(found[1].split())
        return f'data-t="{text}">{t(text)}<'

    def attribute(found: re.Match[str]) -> str:
        name, text = found[1], found[2]
        return f'{name}="{t(text)}" data-t-{name}="{text}"'

    if language != "en":
        texts = f'<link rel="preload" href="/languages/{language}.json" as="fetch" crossorigin />'
        html = html.replace("</head>", f"  {texts}\n  </head>")
    html = re.sub(r"data-t>([^<]+)<", element, html)
    html = re.sub(r'(aria-label|placeholder)="([^"]*)" data-t-\1', attribute, html)
    return html.replace('<html lang="en">', f'<html lang="{language}">')


def first_view_endpoint(
    first: FirstView, headers: Headers, fallback: AsgiApplication
) -> AsgiApplication:
    """The rendered page for GET; the bare one while there is no data."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        accepted = (get_header(scope, b"accept-language") or b"").decode("latin-1")
        asked = scope["method"] in ("GET", "HEAD") and scope["path"] == "/index.html"
        page = first.page(accepted, headers) if asked else None
        if page is None:
            await fallback(scope, receive, send)
        else:
            zipped = b"gzip" in (get_header(scope, b"accept-encoding") or b"")
            await page.send(send, get_header(scope, b"if-none-match"), zipped)

    return application
