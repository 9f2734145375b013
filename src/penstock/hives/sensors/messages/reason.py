"""Why a frame is no message: the reasons by which dead letters are filed.

The scalar decoders raise them, the columnar ones put them into a column; a test holds both to the
same answer. A clock that cannot be read is none of them: the counts are good, and the report comes
without a device time (what becomes of it is told in `hives/steps/decode.py`).
"""

from __future__ import annotations

from enum import StrEnum

from penstock.core.errors import PenstockError


class Reason(StrEnum):
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

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(f"{reason.value.replace('_', ' ')}: {seen}")
        self.reason = reason
