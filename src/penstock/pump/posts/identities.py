"""Fingerprints and inlined contents as JSON has them, in v03 and in WIS2 alike."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from typing import Any, Final

from penstock.pump.errors import BadPost
from penstock.pump.posts import sums
from penstock.pump.posts.post import Inline
from penstock.pump.posts.sums import Sum

#: v02's letters of methods whose value is a digest, and the words for them.
_WORDS: Final = {"s": "sha512", "d": "md5", "n": "md5name"}
_LETTERS: Final = {word: letter for letter, word in _WORDS.items()}
_PLAIN: Final = {"0": "random", "a": "arbitrary"}


def read_identity(given: Mapping[str, Any]) -> Sum:
    method, value = str(given.get("method", "")), str(given.get("value", ""))
    if not method:
        raise BadPost("an identity has a method and a value")
    for letter, word in _PLAIN.items():
        if method == word:
            return Sum(letter, value)
    if method == "cod":
        return Sum(sums.LATER, _LETTERS.get(value, value))
    letter = _LETTERS.get(method, method)
    if letter in _WORDS or letter in sums.BUILT_IN:
        try:
            return Sum(letter, b64decode(value, validate=True).hex())
        except (BadBase64, ValueError):
            raise BadPost(f"the identity {value[:80]!r} is not base64") from None
    return Sum(letter, value)


def write_identity(known: Sum | None) -> dict[str, str] | None:
    if known is None or known.method in (
        sums.REMOVED,
        sums.LINK,
        sums.MADE_DIRECTORY,
        sums.REMOVED_DIRECTORY,
    ):
        return None
    method, value = known.method, known.value
    if method in _PLAIN:
        return {"method": _PLAIN[method], "value": value}
    if method == sums.LATER:
        return {"method": "cod", "value": _WORDS.get(value, value)}
    if method in _WORDS or method in sums.BUILT_IN:
        try:
            value = b64encode(bytes.fromhex(value)).decode()
        except ValueError:
            raise BadPost(f"the sum {value[:80]!r} is not hexadecimal") from None
    return {"method": _WORDS.get(method, method), "value": value}


def read_content(given: Any) -> Inline:
    if not isinstance(given, dict) or not isinstance(given.get("value"), str):
        raise BadPost("an inlined content has an encoding and a value")
    encoding = str(given.get("encoding", "utf-8"))
    if encoding == "base64":
        try:
            return Inline(b64decode(given["value"], validate=True))
        except (BadBase64, ValueError):
            raise BadPost("the inlined content is not base64") from None
    if encoding not in ("utf-8", "utf8"):
        raise BadPost(f"inlined content as {encoding[:20]!r}: should be utf-8 or base64")
    return Inline(given["value"].encode(errors="replace"), "utf-8")


def write_content(content: Inline) -> dict[str, str]:
    if content.encoding == "utf-8":
        return {"encoding": "utf-8", "value": content.data.decode()}
    return {"encoding": "base64", "value": b64encode(content.data).decode()}
