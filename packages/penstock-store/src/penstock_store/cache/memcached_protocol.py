"""The text protocol of memcached, sans-IO: requests, and a parser of replies.

The reply to a read is the values found, to other requests a line.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.core.errors import ProtocolError
from penstock_store.cache.cache import MAX_KEY_BYTES, VALID_KEY

ReplyValues = dict[str, bytes]
Reply = ReplyValues | bytes

STORED: Final = b"STORED"
DELETED: Final = (b"DELETED", b"NOT_FOUND")

_END: Final = b"\r\n"
_MAX_LINE_BYTES: Final = 2048
#: memcached takes longer times as timestamps.
_MAX_RELATIVE_SECONDS: Final = 30 * 86_400


def encode_get(keys: Iterable[str]) -> bytes:
    return b"get " + b" ".join(map(_encoded_key, keys)) + _END


def encode_set(key: str, value: bytes, ttl: float) -> bytes:
    # 0 would mean no expiry.
    seconds = max(1, round(ttl))
    until = seconds if seconds <= _MAX_RELATIVE_SECONDS else int(time.time()) + seconds
    return b"set %b 0 %d %d\r\n%b\r\n" % (_encoded_key(key), until, len(value), value)


def encode_delete(key: str) -> bytes:
    return b"delete " + _encoded_key(key) + _END


class MemcachedReplyParser:
    """Bytes in, complete replies out."""

    __slots__ = ("_buffer", "_values")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._values: ReplyValues = {}

    def feed(self, data: bytes) -> Iterator[Reply]:
        self._buffer += data
        done = 0
        while (end := self._buffer.find(_END, done)) >= 0:
            line = bytes(self._buffer[done:end])
            after = end + len(_END)
            if line.startswith(b"VALUE "):
                key, length = _value_line(line)
                if len(self._buffer) < after + length + len(_END):
                    break
                self._values[key] = bytes(self._buffer[after : after + length])
                done = after + length + len(_END)
                continue
            done = after
            if line == b"END":
                values, self._values = self._values, {}
                yield values
            else:
                yield line
        del self._buffer[:done]
        if end < 0 and len(self._buffer) > _MAX_LINE_BYTES:
            raise ProtocolError("not a memcached server: line too long")


def _encoded_key(key: str) -> bytes:
    """An invalid key is a programming error; `CacheKeys` makes none."""
    if len(key) > MAX_KEY_BYTES or not VALID_KEY.fullmatch(key):
        raise ValueError(f"invalid memcached key {key[:80]!r}")
    return key.encode()


def _value_line(line: bytes) -> tuple[str, int]:
    try:
        _, key, _, length, *_ = line.split(b" ")
        return key.decode(), int(length)
    except ValueError as error:
        raise ProtocolError(f"not a memcached server: {line[:80]!r}") from error
