"""Listings of directories on servers, and the index pages of HTTP servers.

An index is a page of links. Apache, nginx and Python's server write the time, and the first two the
size, behind each link. A size with a unit (`1.2K`) is not exact, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from html.parser import HTMLParser
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

_TIMES: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d"), "%Y-%m-%d %H:%M%z"),
    (re.compile(r"\d\d-\w{3}-\d{4} \d\d:\d\d"), "%d-%b-%Y %H:%M%z"),
)
_SIZE: Final = re.compile(r"\s(\d+)\s*$")


@dataclass(frozen=True, slots=True)
class ListedFile:
    name: str  #: below the directory
    is_directory: bool = False
    size: int | None = None
    mtime: int | None = None  #: nanoseconds since 1970


#: Page, its URL, the zone of times without one.
IndexReader = Callable[[str, str, tzinfo], list[ListedFile]]


class _IndexParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, list[str]]] = []  #: the address, and the text behind it
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href")
        if tag == "a" and address:
            self.links.append((address, []))
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self.links and not self._inside:
            self.links[-1][1].append(data)


def read_index(page: str, url: str, zone: tzinfo = UTC) -> list[ListedFile]:
    """The files and directories directly below the URL; other links are left out."""
    parser = _IndexParser()
    parser.feed(page)
    base = url.rstrip("/") + "/"
    found: dict[str, ListedFile] = {}
    for address, texts in parser.links:
        parts = urlsplit(urljoin(base, address))
        if parts.query or parts.fragment or not parts.path.startswith(urlsplit(base).path):
            continue
        if parts.netloc != urlsplit(base).netloc:
            continue
        rest = unquote(parts.path[len(urlsplit(base).path) :])
        name = rest.rstrip("/")
        if not name or "/" in name or name in (".", ".."):
            continue
        text = " ".join(" ".join(texts).split("\n")[0].split())
        is_directory = rest.endswith("/")
        size = None if is_directory or not (match := _SIZE.search(" " + text)) else int(match[1])
        found[name] = ListedFile(name, is_directory, size, _time(text, zone))
    return list(found.values())


def _time(text: str, zone: tzinfo) -> int | None:
    for pattern, form in _TIMES:
        if (match := pattern.search(text)) is None:
            continue
        try:
            at = datetime.strptime(match[0].replace("T", " ") + "+0000", form)  # noqa: DTZ007
        except ValueError:
            continue
        return int(at.replace(tzinfo=zone).timestamp()) * 10**9
    return None
