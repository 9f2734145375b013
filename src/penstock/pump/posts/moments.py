"""Moments as posts spell them: nanoseconds since 1970 inside, digits outside.

v02 writes `20150813161959.854`, v03 `20150813T161959.854`, WIS2 an RFC 3339 timestamp. The fraction
has up to nine digits or is missing; the seed's own example leaves the seconds away. All are read
wherever one is expected; what is written has the digits it needs and no more.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from penstock.pump.errors import BadPost

SECOND: Final = 1_000_000_000
_DIGITS: Final = re.compile(r"(\d{8}T?\d{4}(?:\d\d)?)(?:\.(\d{0,9})\d*)?Z?", re.ASCII)
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|\+00:00)", re.ASCII
)
_BETWEEN: Final = re.compile(r"\D")


def read_moment(text: str) -> int:
    match = _DIGITS.fullmatch(text) or _RFC3339.fullmatch(text)
    if match is None:
        raise BadPost(f"{text[:40]!r} is no time: should be as 20150813161959.854, in UTC")
    whole, fraction = match.groups()
    try:
        seconds = _seconds(whole)
    except ValueError as error:
        raise BadPost(f"{text[:40]!r} is no time: {error}") from None
    return seconds * SECOND + int((fraction or "").ljust(9, "0"))


@lru_cache(1024)
def _seconds(whole: str) -> int:
    """Many posts are of the same second."""
    digits = _BETWEEN.sub("", whole).ljust(14, "0")
    month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(4, 14, 2))
    at = datetime(int(digits[:4]), month, day, hour, minute, second, tzinfo=UTC)
    return timegm(at.timetuple())


def v02_moment(moment: int) -> str:
    return _spelled(moment, "", "", "")


def v03_moment(moment: int) -> str:
    return _spelled(moment, "", "T", "")


def rfc3339_moment(moment: int) -> str:
    return _spelled(moment, "-", "T", ":") + "Z"


def _spelled(moment: int, dash: str, middle: str, colon: str) -> str:
    seconds, fraction = divmod(moment, SECOND)
    text = _second(seconds, dash, middle, colon)
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


@lru_cache(1024)
def _second(seconds: int, dash: str, middle: str, colon: str) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    date = f"{at.year:04d}{dash}{at.month:02d}{dash}{at.day:02d}"
    return f"{date}{middle}{at.hour:02d}{colon}{at.minute:02d}{colon}{at.second:02d}"
