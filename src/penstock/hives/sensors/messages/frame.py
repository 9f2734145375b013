"""What all codecs share: lengths that must be exact, values that must fit."""

from __future__ import annotations

import struct

from penstock.core.errors import PreconditionFailed
from penstock.hives.sensors.messages.reason import MalformedFrame, Reason


def check_length(body: bytes, shortest: int, longest: int, what: str) -> None:
    if shortest <= len(body) <= longest:
        return
    reason = Reason.TOO_SHORT if len(body) < shortest else Reason.TOO_LONG
    allowed = str(shortest) if shortest == longest else f"{shortest} to {longest}"
    raise MalformedFrame(reason, f"{len(body)} bytes, {what} has {allowed}")


def pack(layout: str, what: str, *values: int) -> bytes:
    try:
        return struct.pack(layout, *values)
    except struct.error as error:
        raise PreconditionFailed(f"{what} cannot be encoded: {error}") from error
