"""What all codecs share: length checks, packing of fields, and why a frame is rejected."""

from __future__ import annotations

import struct
from enum import StrEnum

from penstock.core.errors import PenstockError, PreconditionFailed


def check_length(body: bytes, shortest: int, longest: int, what: str) -> None:
    if shortest <= len(body) <= longest:
        return
    reason = RejectReason.TOO_SHORT if len(body) < shortest else RejectReason.TOO_LONG
    allowed = str(shortest) if shortest == longest else f"{shortest} to {longest}"
    raise MalformedFrame(reason, f"{len(body)} bytes, {what} has {allowed}")


def pack_fields(layout: str, what: str, *values: int) -> bytes:
    try:
        return struct.pack(layout, *values)
    except struct.error as error:
        raise PreconditionFailed(f"{what} cannot be encoded: {error}") from error


class RejectReason(StrEnum):
    """In the order they are looked for: the first that holds is given."""

    NO_BODY = "no_body"  #: null where bytes should be
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    UNKNOWN_VERSION = "unknown_version"
    BAD_CHECKSUM = "bad_checksum"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_TOPIC = "unknown_topic"  #: not of a sensor, or of a kind nobody knows


class MalformedFrame(PenstockError):
    """Bytes that are no message; `reason` files it, the text says what was seen."""

    def __init__(self, reason: RejectReason, seen: str) -> None:
        super().__init__(f"{reason.value.replace('_', ' ')}: {seen}")
        self.reason = reason
