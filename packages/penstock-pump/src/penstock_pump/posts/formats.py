"""The format of a message, recognised by its body, because content types differ among clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock_pump.errors import BadPost
from penstock_pump.posts.codec import PostCodec
from penstock_pump.posts.post import Post
from penstock_pump.posts.v02 import V02, V02Dialect
from penstock_pump.posts.v03 import V03
from penstock_pump.posts.wis2 import Wis2

FORMATS: Final = ("v02", "v03", "wis2")
#: No post is longer, even with inlined content.
MAX_BODY_BYTES: Final = 4 << 20


def codec_named(name: str, dialect: V02Dialect | None = None) -> PostCodec:
    """Only v02 has dialects."""
    if name == "v02":
        return V02(dialect)
    if name == "v03":
        return V03()
    if name == "wis2":
        return Wis2()
    raise BadPost(f"unknown post format {name!r}: should be one of {', '.join(FORMATS)}")


def format_of(body: bytes) -> str:
    if not body[:64].lstrip().startswith((b"{", b"[")):
        return "v02"
    # Both are JSON: only a GeoJSON feature has links.
    return "wis2" if b'"links"' in body and b'"Feature"' in body else "v03"


def read_post(
    body: bytes, headers: Mapping[str, Any] | None = None, dialect: V02Dialect | None = None
) -> Post:
    if len(body) > MAX_BODY_BYTES:
        raise BadPost(f"a message of {len(body)} bytes is too long for a post")
    return codec_named(format_of(body), dialect).decode(body, headers or {})
