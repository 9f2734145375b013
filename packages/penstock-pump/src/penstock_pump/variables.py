"""Variables of a post in directories and names: `${YYYYMMDD-1D}`, `${%Y%m%d}`, `${SOURCE}`, ….

Times are those of the announcement in UTC, so that every attempt and every instance computes the
same path.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock_pump.config.settings import PumpSettings
from penstock_pump.errors import OutsideDirectory
from penstock_pump.posts.post import Post
from penstock_pump.selection import expand

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DATES: Final = {
    "YYYYMMDD": "%Y%m%d",
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "DD": "%d",
    "HH": "%H",
    "MI": "%M",
    "SS": "%S",
    "JJJ": "%j",
}
_DATE: Final = re.compile(rf"({'|'.join(_DATES)})(?:([-+]\d+)([smhdwSMHDW]))?", re.ASCII)
_FORMAT: Final = re.compile(r"(?:%o([-+]\d+)([smhdwSMHDW]))?(%.*)", re.ASCII | re.DOTALL)
#: The heading of a bulletin in a file's name: TTAAii_CCCC_DDHHMM_BBB.
_BULLETIN: Final = re.compile(
    r"(?P<T1>[A-Z])(?P<T2>[A-Z])(?P<A1>[A-Z])(?P<A2>[A-Z])(?P<ii>\d\d)_(?P<CCCC>[A-Z]{4})"
    r"_(?P<YY>\d\d)(?P<GG>\d\d)(?P<Gg>\d\d)(?:_(?P<BBB>[A-Z]{3}))?"
)
#: Parts of the time at which a switch received a file: the seventh field of its name.
_RECEIVED: Final = {
    name: slice(begin, end)
    for name, begin, end in (
        *(("RYYYY", 0, 4), ("RMM", 4, 6), ("RDD", 6, 8)),
        *(("RHH", 8, 10), ("RMN", 10, 12), ("RSS", 12, 14)),
    )
}
_RECEIVED_FIELD: Final = 6
#: sr3's longer names, and v2's former ones.
_ALIASES: Final = {"baseUrlPath": "BUP", "baseUrlPathLast": "BUPL", "DR": "BD", "PDR": "PBD"}


class PostVariables(Mapping[str, str]):
    """The variables of one post, computed when they are asked for; others are those of the
    component."""

    __slots__ = ("_at", "_others", "_post")

    def __init__(self, post: Post, others: Mapping[str, str], offset: float = 0.0) -> None:
        self._post = post
        self._others = others
        self._at = datetime.fromtimestamp(post.moment // 10**9 + offset, UTC)

    def __getitem__(self, name: str) -> str:
        name = _ALIASES.get(name, name)
        if name.startswith("%") and (found := _FORMAT.fullmatch(name)):
            return self._moment(found[1], found[2]).strftime(found[3])
        if name == "SOURCE":
            return _directory_name("source", self._post.source or "")
        if name in ("BUP", "BUPL"):
            path = unquote(urlsplit(self._post.base_url).path).strip("/")
            if ".." in path.split("/"):
                raise OutsideDirectory(f"base URL {self._post.base_url!r} has a path with ..")
            return path if name == "BUP" else path.rpartition("/")[2]
        if name in _BULLETIN.groupindex and (heading := _BULLETIN.search(self._post.name)):
            return heading[name] or ""
        if name in self._others:
            return self._others[name]
        if name in _RECEIVED:
            return self._received()[_RECEIVED[name]]
        if date := _DATE.fullmatch(name):
            return self._moment(date[2], date[3]).strftime(_DATES[date[1]])
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._others, "SOURCE", "BUP", "BUPL", *_DATES))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _received(self) -> str:
        fields = self._post.name.split(":")
        known = fields[_RECEIVED_FIELD] if len(fields) > _RECEIVED_FIELD else ""
        return known if known.isdecimal() else self._at.strftime("%Y%m%d%H%M%S")

    def _moment(self, count: str | None, unit: str | None) -> datetime:
        if count is None or unit is None:
            return self._at
        return self._at + timedelta(**{_UNITS[unit.lower()]: int(count)})


def component_variables(settings: PumpSettings) -> dict[str, str]:
    """Those that do not depend on a post."""
    found = {**os.environ, **settings.variables}
    if settings.base_dir is not None:
        found["BD"] = str(settings.base_dir)
    if settings.post_base_dir is not None:
        found["PBD"] = str(settings.post_base_dir)
    return found


def expand_now(settings: PumpSettings, text: str) -> str:
    """With the variables of this moment."""
    now = Post(moment=time.time_ns(), base_url=settings.poll_url or "", relpath="-")
    return expand(text, PostVariables(now, component_variables(settings), settings.var_time_offset))


def _directory_name(what: str, name: str) -> str:
    if "/" in name or name in (".", ".."):
        raise OutsideDirectory(f"{what} {name!r} is not the name of a directory")
    return name
