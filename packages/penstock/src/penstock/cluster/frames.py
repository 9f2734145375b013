"""The replication protocol: bytes in, frames out.

    frame    length u32 of all that follows, crc32 u32 of all that follows it, type u8, payload

A follower connects and says HELLO. The leader answers CHALLENGE, which proves that it knows the
secret; the follower proves the same with PROOF. Then:

    leader    INDEX…, END               path, size and digests of each file
    follower  FETCH…, END               path and position from which it needs a file
    leader    DATA…, END                their content
    leader    CHANGES…                  epoch, sequence, changes in order
    follower  ACK…                      the last sequence that is on its disk

Hellos are JSON. Paths are relative to the data directory. Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple
from zlib import crc32

from penstock.core.errors import FrameError

#: Of this protocol. Members of one cluster have the same.
PROTOCOL_VERSION: Final = 1
#: The largest frame that is accepted.
MAX_FRAME_BYTES: Final = 64 << 20

_HEAD: Final = struct.Struct("<IIB")
_CHANGES: Final = struct.Struct("<QQB")
_CHANGE: Final = struct.Struct("<BHQI")
_ACK: Final = struct.Struct("<QQ")
_PATH: Final = struct.Struct("<HQ")


class FrameType(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    REFUSED = 4
    INDEX = 5
    FETCH = 6
    DATA = 7
    END = 8
    CHANGES = 9
    ACK = 10


class ChangeKind(IntEnum):
    APPEND = 1  #: bytes at a position
    TRUNCATE = 2  #: to a size
    DELETE = 3  #: a file or a directory
    BEGIN = 4  #: a new content of a file follows in parts …
    PART = 5
    COMMIT = 6  #: … and is complete: it replaces the file
    LINK = 7  #: the file gets the content of another, which never changes


class Change(NamedTuple):
    kind: ChangeKind
    path: str
    number: int = 0  #: a position or size
    data: bytes = b""  #: of LINK, the other path


class Frame(NamedTuple):
    type: FrameType
    payload: bytes

    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.payload)
        except ValueError:
            raise FrameError("replication: a frame is not JSON") from None
        if not isinstance(value, dict):
            raise FrameError("replication: a frame is not a JSON object")
        return value


class FrameDecoder:
    """Cuts received bytes into frames; raises FrameError."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._data += data
        at = 0
        while len(self._data) - at >= _HEAD.size:
            length, check, kind = _HEAD.unpack_from(self._data, at)
            if not 5 <= length <= MAX_FRAME_BYTES:
                raise FrameError(f"replication: a frame of {length} bytes")
            end = at + 4 + length
            if end > len(self._data):
                break
            content = bytes(self._data[at + 8 : end])
            if crc32(content) != check:
                raise FrameError("replication: a frame does not match its checksum")
            if kind not in FrameType.__members__.values():
                raise FrameError(f"replication: unknown frame type {kind}")
            yield Frame(FrameType(kind), content[1:])
            at = end
        del self._data[:at]


def encode_frame(kind: FrameType, payload: bytes = b"") -> bytes:
    content = bytes((kind,)) + payload
    return _HEAD.pack(len(content) + 4, crc32(content), kind) + payload


def encode_json_frame(kind: FrameType, **fields: Any) -> bytes:
    return encode_frame(kind, json.dumps(fields).encode())


def encode_changes(epoch: int, sequence: int, is_last: bool, changes: bytes) -> bytes:
    """`is_last`: the batch of that sequence is complete."""
    return encode_frame(FrameType.CHANGES, _CHANGES.pack(epoch, sequence, is_last) + changes)


def encode_change(kind: ChangeKind, path: str, number: int = 0, data: bytes = b"") -> bytes:
    name = path.encode("utf-8", "surrogateescape")
    return _CHANGE.pack(kind, len(name), number, len(data)) + name + data


class ReplicatedBatch(NamedTuple):
    epoch: int
    sequence: int
    is_last: bool
    changes: list[Change]


def decode_changes(payload: bytes) -> ReplicatedBatch:
    try:
        epoch, sequence, is_last = _CHANGES.unpack_from(payload)
        at = _CHANGES.size
        changes = []
        while at < len(payload):
            kind, name_bytes, number, data_bytes = _CHANGE.unpack_from(payload, at)
            at += _CHANGE.size
            stop = at + name_bytes + data_bytes
            if stop > len(payload):
                raise FrameError("replication: a change is cut")
            name = payload[at : at + name_bytes].decode("utf-8", "surrogateescape")
            changes.append(Change(ChangeKind(kind), name, number, payload[at + name_bytes : stop]))
            at = stop
    except (struct.error, ValueError) as error:
        raise FrameError(f"replication: changes cannot be read: {error}") from None
    return ReplicatedBatch(epoch, sequence, bool(is_last), changes)


def encode_ack(epoch: int, sequence: int) -> bytes:
    return encode_frame(FrameType.ACK, _ACK.pack(epoch, sequence))


def decode_ack(payload: bytes) -> tuple[int, int]:
    if len(payload) != _ACK.size:
        raise FrameError("replication: an acknowledgement cannot be read")
    epoch, sequence = _ACK.unpack(payload)
    return epoch, sequence


class FilePart(NamedTuple):
    """Of DATA: content at a position. Of FETCH: the position alone. Of INDEX: size and digests."""

    path: str
    number: int
    data: bytes


def encode_file_part(kind: FrameType, path: str, number: int, data: bytes = b"") -> bytes:
    name = path.encode("utf-8", "surrogateescape")
    return encode_frame(kind, _PATH.pack(len(name), number) + name + data)


def decode_file_part(payload: bytes) -> FilePart:
    if len(payload) < _PATH.size:
        raise FrameError("replication: a path is cut")
    length, number = _PATH.unpack_from(payload)
    stop = _PATH.size + length
    name = payload[_PATH.size : stop].decode("utf-8", "surrogateescape")
    return FilePart(name, number, payload[stop:])


def link_proof(secret: str, role: str, ours: str, theirs: str, epoch: int) -> str:
    """Proves knowledge of the secret for one connection; `ours` and `theirs` are random."""
    text = "\n".join((role, ours, theirs, str(epoch)))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
