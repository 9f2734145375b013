"""The interface of codecs, and the fields that formats have in common.

A codec converts a post to a body and headers, and back; `flow/publisher.py` chooses exchange and
topic. Unreadable input raises `BadPost`.

Times are nanoseconds since 1970. v02 writes `20150813161959.854`, v03 `20150813T161959.854`, WIS2
an RFC 3339 timestamp; all forms are read everywhere. The fraction has up to nine digits; seconds
may be missing, as in an example of sr_post(7).
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
SECOND: Final = 1_000_000_000
_DIGITS: Final = re.compile(r"(\d{8}T?\d{4}(?:\d\d)?)(?:\.(\d{0,9})\d*)?Z?", re.ASCII)
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|\+00:00)", re.ASCII
)
_SEPARATORS: Final = re.compile(r"\D")


@dataclass(frozen=True, slots=True)
class EncodedPost:
    body: str | dict[str, Any]  #: text, or a JSON object
    headers: Mapping[str, Any] = field(default_factory=dict)


class PostCodec(Protocol):
    name: str
    prefix: str  #: the first words of the topic, separated by dots

    def encode(self, post: Post) -> EncodedPost: ...

    def decode(self, body: bytes, headers: Mapping[str, Any]) -> Post: ...


def text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadPost("the body is not UTF-8") from None


def checked_path(path: str) -> str:
    if not path or _CONTROL.search(path) is not None:
        raise BadPost(f"{path[:80]!r} is not a path: it is empty or has control characters")
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


def read_moment(text: str) -> int:
    match = _DIGITS.fullmatch(text) or _RFC3339.fullmatch(text)
    if match is None:
        raise BadPost(f"{text[:40]!r} is not a time: should be as 20150813161959.854, in UTC")
    whole, fraction = match.groups()
    try:
        seconds = _seconds(whole)
    except ValueError as error:
        raise BadPost(f"{text[:40]!r} is not a time: {error}") from None
    return seconds * SECOND + int((fraction or "").ljust(9, "0"))


@lru_cache(1024)
def _seconds(whole: str) -> int:
    """Cached: many posts are of the same second."""
    digits = _SEPARATORS.sub("", whole).ljust(14, "0")
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
