"""What a codec is: one spelling of posts, both ways.

A spelling turns a post into a body and headers, and back; which exchange or topic they go to is for
whoever publishes them (`flow/publisher.py`). What cannot be read raises `BadPost` with the reason.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Protocol

from penstock_pump.errors import BadPost
from penstock_pump.posts.post import Post

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class EncodedPost:
    """A post as it travels: a text, or a JSON value; and its headers."""

    body: str | dict[str, Any]
    headers: Mapping[str, Any] = field(default_factory=dict)


class PostCodec(Protocol):
    name: str
    prefix: str  #: the first words of the topic, parted by dots

    def encode(self, post: Post) -> EncodedPost: ...

    def decode(self, body: bytes, headers: Mapping[str, Any]) -> Post: ...


def text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadPost("the body is not UTF-8") from None


def checked_path(path: str) -> str:
    """A path that can be a file's: some bytes, none of them a control character."""
    if not path or _CONTROL.search(path) is not None:
        raise BadPost(f"{path[:80]!r} is no path: it is empty or has control characters")
    return path


def read_mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise BadPost(f"mode {text[:20]!r} should be octal, as 644")
    return mode


def write_mode(mode: int) -> str:
    return f"{mode:o}"


# Moments as posts spell them: nanoseconds since 1970 inside, digits outside.
#
# v02 writes `20150813161959.854`, v03 `20150813T161959.854`, WIS2 an RFC 3339 timestamp. The
# fraction has up to nine digits or is missing; the seed's own example leaves the seconds away. All
# are read wherever one is expected; what is written has the digits it needs and no more.

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
    return _encoded(moment, "", "", "")


def v03_moment(moment: int) -> str:
    return _encoded(moment, "", "T", "")


def rfc3339_moment(moment: int) -> str:
    return _encoded(moment, "-", "T", ":") + "Z"


def _encoded(moment: int, dash: str, middle: str, colon: str) -> str:
    seconds, fraction = divmod(moment, SECOND)
    text = _second(seconds, dash, middle, colon)
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


@lru_cache(1024)
def _second(seconds: int, dash: str, middle: str, colon: str) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    date = f"{at.year:04d}{dash}{at.month:02d}{dash}{at.day:02d}"
    return f"{date}{middle}{at.hour:02d}{colon}{at.minute:02d}{colon}{at.second:02d}"
