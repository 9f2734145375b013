"""v03: a JSON object, as sr3 sends it.

`fileOp` has the operations that v02 encodes in the letter of the checksum. Checksums are base64 of
the digest. Older forms are read: `integrity` for `identity`, an array of four, `parts` and `sum` as
in v02. Unknown keys are passed on unchanged. WIS2 has the same checksums and inlined content.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from penstock_pump.errors import BadPost
from penstock_pump.posts import checksums
from penstock_pump.posts.checksums import Checksum, read_sum
from penstock_pump.posts.codec import (
    EncodedPost,
    checked_path,
    read_mode,
    read_moment,
    text_of,
    v03_moment,
    write_mode,
)
from penstock_pump.posts.parts import INPLACE, PARTITIONED, Parts, read_parts
from penstock_pump.posts.post import InlineContent, Post

_METHODS: Final = {"inplace": INPLACE, "partitioned": PARTITIONED}
_METHOD_WORDS: Final = {letter: word for word, letter in _METHODS.items()}
_TEXTS: Final = {
    "rename": "rename",
    "newname": "newname",
    "oldname": "oldname",
    "source": "source",
    "from_cluster": "from_cluster",
    "to_clusters": "to_clusters",
    "retrievePath": "retrieve",
}
_READ: Final = frozenset(
    {"pubTime", "baseUrl", "relPath", "size", "mode", "mtime", "atime", "identity", "integrity"}
    | {"fileOp", "blocks", "content", "parts", "sum", "link", "retPath", *_TEXTS}
)
#: The checksums of the other blocks, which are passed on unread.
_MANIFEST: Final = "blocks.manifest"
#: v02's letters of methods whose value is a digest, and their names in v03.
_WORDS: Final = {"s": "sha512", "d": "md5", "n": "md5name"}
_LETTERS: Final = {word: letter for letter, word in _WORDS.items()}
_PLAIN: Final = {"0": "random", "a": "arbitrary"}
_PLAIN_LETTERS: Final = {word: letter for letter, word in _PLAIN.items()}


class V03:
    name = "v03"
    prefix = "v03"

    def encode(self, post: Post) -> EncodedPost:
        body: dict[str, Any] = {
            name: value if isinstance(value, str | int | float | list | dict) else str(value)
            for name, value in post.extra.items()
            if name != _MANIFEST and value is not None
        }
        body["pubTime"] = v03_moment(post.moment)
        body["baseUrl"] = post.base_url
        body["relPath"] = checked_path(post.relpath)
        for key, field in _TEXTS.items():
            value = getattr(post, field)
            if value is not None and field != "newname":
                body[key] = value
        if post.mtime is not None:
            body["mtime"] = v03_moment(post.mtime)
        if post.atime is not None:
            body["atime"] = v03_moment(post.atime)
        if post.mode is not None:
            body["mode"] = write_mode(post.mode)
        _write_parts(body, post)
        if (operation := _operation(post)) is not None:
            body["fileOp"] = operation
        if (identity := write_identity(post.sum)) is not None:
            body["identity"] = identity
        if post.content is not None:
            body["content"] = write_content(post.content)
        return EncodedPost(body)

    def decode(self, body: bytes, headers: Mapping[str, Any]) -> Post:
        return post_of(read_object(body))


def read_object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(text_of(body))
    except (ValueError, RecursionError):
        raise BadPost("the body is not JSON") from None
    if isinstance(given, list) and len(given) == 4 and isinstance(given[3], dict):
        moment, base_url, relpath, rest = given
        return {**rest, "pubTime": moment, "baseUrl": base_url, "relPath": relpath}
    if not isinstance(given, dict):
        raise BadPost("the body is not a JSON object")
    return given


def post_of(given: dict[str, Any]) -> Post:
    extra = {key: value for key, value in given.items() if key not in _READ}
    operation = _dict(given, "fileOp")
    texts = {field: _text(given, key) for key, field in _TEXTS.items() if key in given}
    if "rename" in operation:
        texts["oldname"] = _below(str(operation["rename"]), _text(given, "baseUrl"))
    if "newname" in operation:
        texts["newname"] = _below(str(operation["newname"]), _text(given, "baseUrl"))
    if "retPath" in given:
        texts.setdefault("retrieve", _text(given, "retPath"))
    blocks = _dict(given, "blocks")
    if "manifest" in blocks:
        extra[_MANIFEST] = blocks["manifest"]
    relpath = checked_path(_text(given, "relPath"))
    link = operation.get("link", given.get("link"))
    for path in (texts.get("rename"), texts.get("oldname"), texts.get("newname")):
        if path is not None:
            checked_path(path)
    return Post(
        moment=read_moment(_text(given, "pubTime")),
        base_url=_text(given, "baseUrl"),
        relpath=relpath,
        sum=_read_sum(given, operation, relpath),
        parts=_read_parts(given, blocks),
        mtime=read_moment(_text(given, "mtime")) if "mtime" in given else None,
        atime=read_moment(_text(given, "atime")) if "atime" in given else None,
        mode=read_mode(_text(given, "mode")) if "mode" in given else None,
        link=None if link is None else str(link),
        content=read_content(given["content"]) if "content" in given else None,
        extra=extra,
        **texts,
    )


def _below(path: str, base_url: str) -> str:
    """sr3 names the former place of a moved file with the path of the base URL."""
    base = unquote(urlsplit(base_url).path).rstrip("/")
    return path.removeprefix(f"{base}/") if base else path


def _operation(post: Post) -> dict[str, str] | None:
    operation: dict[str, str] = {}
    method = post.sum.method if post.sum else None
    if method in (checksums.REMOVED, checksums.REMOVED_DIRECTORY):
        operation["remove"] = ""
    if method in (checksums.MADE_DIRECTORY, checksums.REMOVED_DIRECTORY):
        operation["directory"] = ""
    if post.link is not None:
        operation["link"] = post.link
    # A move is two posts, which sr3 takes for a removal and a new file: it ignores removals with
    # `newname` beside `fileOp`, and its sender gives up if it cannot find what `rename` names.
    if post.newname is not None:
        operation["newname"] = post.newname
    return operation or None


def _read_sum(given: dict[str, Any], operation: Mapping[str, Any], relpath: str) -> Checksum | None:
    name = relpath.rstrip("/").rpartition("/")[2]
    if "remove" in operation:
        return checksums.removal_sum(name, directory="directory" in operation)
    if "directory" in operation or "mkdir" in operation:
        return checksums.directory_sum(name)
    if "link" in operation:
        return checksums.link_sum(str(operation["link"]))
    for key in ("identity", "integrity"):
        if key in given:
            return read_identity(_dict(given, key))
    return read_sum(_text(given, "sum")) if "sum" in given else None


def _read_parts(given: dict[str, Any], blocks: Mapping[str, Any]) -> Parts | None:
    if "parts" in given:
        return read_parts(_text(given, "parts"))
    try:
        if blocks:
            return Parts(
                _METHODS.get(str(blocks.get("method")), str(blocks.get("method"))),
                int(blocks["size"]),
                int(blocks["count"]),
                int(blocks.get("remainder", 0)),
                int(blocks.get("number", 0)),
            )
        return Parts.whole(int(given["size"])) if "size" in given else None
    except (KeyError, TypeError, ValueError) as error:
        raise BadPost(f"size or blocks cannot be read: {error}") from None


def _write_parts(body: dict[str, Any], post: Post) -> None:
    if post.parts is None:
        return
    body["size"] = post.parts.file_size
    if not post.parts.single:
        body["blocks"] = {
            "method": _METHOD_WORDS[post.parts.method],
            "size": post.parts.size,
            "count": post.parts.count,
            "remainder": post.parts.remainder,
            "number": post.parts.number,
        }
        if _MANIFEST in post.extra:
            body["blocks"]["manifest"] = post.extra[_MANIFEST]


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str | int | float):
        raise BadPost(f"{key} is missing or is not text")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadPost(f"{key} is not UTF-8") from None
    return text


def _dict(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = given.get(key, {})
    if not isinstance(value, dict):
        raise BadPost(f"{key} should be an object")
    return value


def read_identity(given: Mapping[str, Any]) -> Checksum:
    method, value = str(given.get("method", "")), str(given.get("value", ""))
    if not method:
        raise BadPost("identity should have a method and a value")
    if method in _PLAIN_LETTERS:
        return Checksum(_PLAIN_LETTERS[method], value)
    if method == "cod":
        return Checksum(checksums.LATER, _LETTERS.get(value, value))
    letter = _LETTERS.get(method, method)
    if letter in _WORDS or letter in checksums.BUILT_IN:
        try:
            return Checksum(letter, b64decode(value, validate=True).hex())
        except (BadBase64, ValueError):
            raise BadPost(f"identity {value[:80]!r} is not base64") from None
    return Checksum(letter, value)


def write_identity(known: Checksum | None) -> dict[str, str] | None:
    if known is None or known.method in (
        checksums.REMOVED,
        checksums.LINK,
        checksums.MADE_DIRECTORY,
        checksums.REMOVED_DIRECTORY,
    ):
        return None
    method, value = known.method, known.value
    if method in _PLAIN:
        return {"method": _PLAIN[method], "value": value}
    if method == checksums.LATER:
        return {"method": "cod", "value": _WORDS.get(value, value)}
    if method in _WORDS or method in checksums.BUILT_IN:
        try:
            value = b64encode(bytes.fromhex(value)).decode()
        except ValueError:
            raise BadPost(f"checksum {value[:80]!r} is not hexadecimal") from None
    return {"method": _WORDS.get(method, method), "value": value}


def identity_name(method: str) -> str:
    """Of a checksum method: `s` is `sha512`."""
    return _WORDS.get(method) or _PLAIN.get(method, method)


def read_content(given: Any) -> InlineContent:
    if not isinstance(given, dict) or not isinstance(given.get("value"), str):
        raise BadPost("inlined content should have an encoding and a value")
    encoding = str(given.get("encoding", "utf-8"))
    if encoding == "base64":
        try:
            return InlineContent(b64decode(given["value"], validate=True))
        except (BadBase64, ValueError):
            raise BadPost("inlined content is not base64") from None
    if encoding not in ("utf-8", "utf8"):
        raise BadPost(f"inlined content has encoding {encoding[:20]!r}: should be utf-8 or base64")
    return InlineContent(given["value"].encode(errors="replace"), "utf-8")


def write_content(content: InlineContent) -> dict[str, str]:
    if content.encoding == "utf-8":
        return {"encoding": "utf-8", "value": content.data.decode()}
    return {"encoding": "base64", "value": b64encode(content.data).decode()}
