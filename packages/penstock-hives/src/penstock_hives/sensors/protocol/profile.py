"""What must be known of a sensor's firmware to read it: the column `sensor.profile`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

#: The manual names 65535 and 65523; 65503 is what the +32 leaves of sixteen bits. A profile that
#: does not say is read by the second, at most 32 events wrong for each wrap.
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
    V1 = "v1"  #: cumulative reports with all their quirks
    V2 = "v2"  #: cumulative reports with a version, a message counter and a checksum
    EVENT = "event"  #: a message for each person


@dataclass(frozen=True, slots=True)
class FirmwareProfile:
    """The defaults are those of a v1 device nobody has looked at more closely."""

    byte_order: ByteOrder = ByteOrder.BIG
    wrap_at: int | None = None  #: the largest total before 0; None: nobody knows
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
        """Missing names take their defaults; names of other programs are passed over."""
        return cls(
            ByteOrder(document.get("byte_order", ByteOrder.BIG)),
            document.get("wrap_at"),
            document.get("plus_32", True),
            document.get("event_counter", False),
        )
