"""v02: a line of text and a table of headers, as sr_post(7) defines it and as clients send it.

Where the manual page and Sarracenia's programs differ, both are read; a `V02Dialect` chooses what
is written:

* the topic has the directories; with `name_in_topic` the file's name too, as in the manual;
* the body has no newline at its end; with `newline` it has, as in the manual;
* whole files have method 1 (an example of the manual has p with one block, which is also read);
* times have fourteen digits and a fraction (twelve digits are also read);
* in names a space is %20 and # is %23, and nothing else is escaped, so a name that contains a
  literal %20 is ambiguous; with `exact_names` the percent sign is escaped where needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_pump.errors import BadPost
from penstock_pump.posts.checksums import read_sum
from penstock_pump.posts.codec import (
    EncodedPost,
    checked_path,
    read_mode,
    read_moment,
    text_of,
    v02_moment,
    write_mode,
)
from penstock_pump.posts.parts import read_parts
from penstock_pump.posts.post import Post

#: Sarracenia's clients refuse to send a longer value.
MAX_HEADER_BYTES: Final = 252

#: Headers that are text fields of a post.
_TEXTS: Final = (
    *("link", "rename", "oldname", "newname"),
    *("source", "from_cluster", "to_clusters"),
)
_READ: Final = frozenset({*_TEXTS, "sum", "parts", "mtime", "atime", "mode"})
_ESCAPED: Final = re.compile("%(20|23|25)")
_AMBIGUOUS: Final = re.compile("%(?=20|23|25)")


@dataclass(frozen=True, slots=True)
class V02Dialect:
    name_in_topic: bool = False
    newline: bool = False
    exact_names: bool = False


class V02:
    name = "v02"
    prefix = "v02.post"

    def __init__(self, dialect: V02Dialect | None = None) -> None:
        self.dialect = dialect or V02Dialect()

    def encode(self, post: Post) -> EncodedPost:
        fields = (
            v02_moment(post.moment),
            _escaped(post.base_url),
            self._escaped_name(checked_path(post.relpath)),
        )
        end = "\n" if self.dialect.newline else ""
        return EncodedPost(" ".join(fields) + end, v02_headers(post))

    def decode(self, body: bytes, headers: Mapping[str, Any]) -> Post:
        moment, base_url, relpath, _ = split_body(body)
        return post_of(moment, base_url, self._plain_name(relpath), headers)

    def _escaped_name(self, name: str) -> str:
        return _escaped(_AMBIGUOUS.sub("%25", name) if self.dialect.exact_names else name)

    def _plain_name(self, name: str) -> str:
        if self.dialect.exact_names:
            return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)
        return _plain(name)


def split_body(body: bytes) -> tuple[str, str, str, list[str]]:
    """The three required fields, and the rest of the first line."""
    line = text_of(body).partition("\n")[0]
    moment, *rest = line.split(" ")
    if len(rest) < 2:
        raise BadPost(f"{line[:120]!r} should be TIME BASE_URL RELPATH")
    return moment, rest[0], rest[1], rest[2:]


def post_of(moment: str, base_url: str, relpath: str, headers: Mapping[str, Any]) -> Post:
    given = {name: _text(value) for name, value in headers.items() if name in _READ}
    texts: dict[str, Any] = {name: given[name] for name in _TEXTS if name in given}
    for name in ("rename", "oldname", "newname"):
        if name in texts:
            checked_path(texts[name])
    return Post(
        moment=read_moment(moment),
        base_url=_plain(base_url),
        relpath=checked_path(relpath),
        sum=read_sum(given["sum"]) if "sum" in given else None,
        parts=read_parts(given["parts"]) if "parts" in given else None,
        mtime=read_moment(given["mtime"]) if "mtime" in given else None,
        atime=read_moment(given["atime"]) if "atime" in given else None,
        mode=read_mode(given["mode"]) if "mode" in given else None,
        extra={name: value for name, value in headers.items() if name not in _READ},
        **texts,
    )


def v02_headers(post: Post) -> dict[str, Any]:
    headers: dict[str, Any] = dict(post.extra)
    given: dict[str, object] = {name: getattr(post, name) for name in _TEXTS}
    given["sum"], given["parts"] = post.sum, post.parts
    given["mtime"] = None if post.mtime is None else v02_moment(post.mtime)
    given["atime"] = None if post.atime is None else v02_moment(post.atime)
    given["mode"] = None if post.mode is None else write_mode(post.mode)
    headers.update((name, str(value)) for name, value in given.items() if value is not None)
    for name, value in headers.items():
        if isinstance(value, str) and len(value.encode(errors="replace")) > MAX_HEADER_BYTES:
            raise BadPost(f"header {name} is longer than v02 allows, {MAX_HEADER_BYTES}: use v03")
    return headers


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise BadPost("a header is not UTF-8")
    return str(value)


def _escaped(text: str) -> str:
    return text.replace(" ", "%20").replace("#", "%23")


def _plain(text: str) -> str:
    return text.replace("%20", " ").replace("%23", "#")
