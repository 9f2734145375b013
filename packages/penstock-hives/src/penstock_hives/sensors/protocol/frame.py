"""What all codecs share: firmware profiles, length checks, packing, and reject reasons.

A `FirmwareProfile` is the column `sensor.profile`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.core.errors import PenstockError, PreconditionFailed

#: The manual names 65535 and 65523; 65503 is what +32 leaves of sixteen bits. The default is at
#: most 32 events wrong for each wrap.
WRAP_POINTS: Final = (65535, 65523, 65503)
DEFAULT_WRAP_AT: Final = 65523


class ByteOrder(StrEnum):
    BIG = "big"
    LITTLE = "little"

    @property
    def sign(self) -> str:
        """As `struct` and NumPy write it."""
        return ">" if self is ByteOrder.BIG else "<"


class SensorProtocol(StrEnum):
    V1 = "v1"  #: cumulative reports, with the ambiguities of the manual
    V2 = "v2"  #: cumulative reports with a version, a message counter and a checksum
    EVENT = "event"  #: a message for each person


@dataclass(frozen=True, slots=True)
class FirmwareProfile:
    """The defaults are those of a v1 device."""

    byte_order: ByteOrder = ByteOrder.BIG
    wrap_at: int | None = None  #: the largest total before 0; None: unknown
    plus_32: bool = True  #: report v1 adds 32 to every counter and date field
    event_counter: bool = False  #: byte 3 of an event counts messages

    def to_json(self) -> dict[str, Any]:
        known = {} if self.wrap_at is None else {"wrap_at": self.wrap_at}
        return {
            "byte_order": self.byte_order.value,
            **known,
            "plus_32": self.plus_32,
            "event_counter": self.event_counter,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FirmwareProfile:
        """Missing names take their defaults; unknown names are ignored."""
        return cls(
            ByteOrder(document.get("byte_order", ByteOrder.BIG)),
            document.get("wrap_at"),
            document.get("plus_32", True),
            document.get("event_counter", False),
        )


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
    """In the order of the checks: the first that fails is the reason."""

    NO_BODY = "no_body"  #: the body is null
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    UNKNOWN_VERSION = "unknown_version"
    BAD_CHECKSUM = "bad_checksum"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_TOPIC = "unknown_topic"  #: not of a sensor, or of an unknown kind


class MalformedFrame(PenstockError):
    """Bytes that are no message."""

    def __init__(self, reason: RejectReason, seen: str) -> None:
        super().__init__(f"{reason.value.replace('_', ' ')}: {seen}")
        self.reason = reason
