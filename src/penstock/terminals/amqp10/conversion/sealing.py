"""Sections that were kept beside a message, under a seal.

Whether what was kept still holds is seen by converting it again (`beside.py`), which costs as much
as the first time. Nearly always nobody has touched the message in between, and the seal, a keyed
hash over its content header, says so: then the sections go out as they came. The key is the one
that Python gives to every process (its hash of bytes is SipHash), so that nobody else can set a
seal, and those of an earlier process are broken: their messages go the long way.

The seal is the first of the headers, and those that are kept follow it; a stream puts the offset
before it, which breaks no seal.
"""

from __future__ import annotations

from typing import Final

#: The seal's entry in the table of headers: its name, and eight octets that mean nothing to others.
_NAME: Final = b"\x0fx-amqp-1.0-sealx\0\0\0\x08"
_BYTES: Final = 8
BLANK: Final = _NAME + bytes(_BYTES)
SEAL: Final = b"x-amqp-1.0-seal"

_OFFSET: Final = b"\x0fx-stream-offsetl"
_OFFSET_BYTES: Final = len(_OFFSET) + 8


def seal(header: bytes) -> bytes:
    """Set the seal on a header whose table begins with a blank one."""
    table = _table_at(header)
    at = table + 4 + len(_NAME)
    mark = hash(header[12:table] + header[at + _BYTES :])
    return header[:at] + mark.to_bytes(_BYTES, "big", signed=True) + header[at + _BYTES :]


def sealed(header: bytes) -> tuple[dict[bytes, bytes], bytes] | None:
    """What is kept under an unbroken seal, by name; and the offset, if there is one."""
    if not header[12] & 0x20:
        return None
    table = _table_at(header)
    at = table + 4
    offset = b""
    if header.startswith(_OFFSET, at):
        offset = header[at + len(_OFFSET) : at + _OFFSET_BYTES]
        at += _OFFSET_BYTES
    if not header.startswith(_NAME, at):
        return None
    at += len(_NAME)
    mark = int.from_bytes(header[at : at + _BYTES], "big", signed=True)
    at += _BYTES
    if hash(header[12:table] + header[at:]) != mark:
        return None
    kept: dict[bytes, bytes] = {}
    while header.startswith(b"x-amqp-1.0-", at + 1):
        start = at + 1
        at = start + header[at]
        name = header[start:at]
        start = at + 5
        at = start + int.from_bytes(header[at + 1 : start], "big")
        kept[name] = header[start:at]
    return kept, offset


def entry(name: bytes, content: bytes) -> bytes:
    """A header of octets."""
    return bytes((len(name),)) + name + b"x" + len(content).to_bytes(4, "big") + content


def _table_at(header: bytes) -> int:
    at = 14
    if header[12] & 0x80:
        at += 1 + header[at]
    if header[12] & 0x40:
        at += 1 + header[at]
    return at
