"""What a codec is: one spelling of posts, both ways.

A spelling turns a post into a body and headers, and back; which exchange or topic they go to is for
whoever publishes them (`announcing.py`). What cannot be read raises `BadPost` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.pump.errors import BadPost
from penstock.pump.posts.post import Post

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Spelled:
    """A post as it travels: a text, or a JSON value; and its headers."""

    body: str | dict[str, Any]
    headers: Mapping[str, Any] = field(default_factory=dict)


class Spelling(Protocol):
    name: str
    prefix: str  #: the first words of the topic, parted by dots

    def encode(self, post: Post) -> Spelled: ...

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


def written_mode(mode: int) -> str:
    return f"{mode:o}"
