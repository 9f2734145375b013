"""What a device has sent, before it is bytes: one row for each message.

A row knows when it was sent and what will become of it. Fields that one kind of message does not
have serve another: a status keeps its start-up time and configuration id where reports have totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Numbers

SentMessages = NDArray[np.void]

SENT_DTYPE: Final = np.dtype(
    [
        ("at", "i8"),  # sent, Unix ms by a clock that is right
        ("arrives", "i8"),  # at the broker
        ("sensor", "i4"),
        ("utc_offset", "i4"),  # seconds, at the hive then
        ("total_in", "i8"),  # since the start, before it wraps
        ("total_out", "i8"),
        ("diff_in", "i4"),
        ("diff_out", "i4"),
        ("dice", "u4"),  # for whatever else is left to chance
        ("counter", "u2"),
        ("form", "u1"),
        ("type", "u1"),
        ("fate", "u1"),
        ("dateless", "?"),
    ],
    align=True,  # else, with rows of an odd length, most numbers are not
)
_BYTES: Final = np.dtype(f"V{SENT_DTYPE.itemsize}")


class MessageForm(IntEnum):
    REPORT = 0
    REPORT2 = 1
    EVENT = 2
    STATUS = 3


class DeliveryOutcome(IntEnum):
    ARRIVES = 0
    LOST = 1
    DAMAGED = 2  #: and arrives as no message at all
    SCRAMBLED = 3  #: and arrives with totals that mean nothing
    TWICE = 4
    LATE = 5


def make_messages(sensor: Numbers, **values: Any) -> SentMessages:
    made = np.zeros(len(sensor), SENT_DTYPE)
    made["sensor"] = sensor
    for name, value in values.items():
        made[name] = value
    return made


def concat_messages(parts: Sequence[SentMessages]) -> SentMessages:
    """One after the other. NumPy copies records field by field, but bytes as fast as they go."""
    return np.concatenate([part.view(_BYTES) for part in parts]).view(SENT_DTYPE)


def take_messages(sent: SentMessages, places: Numbers) -> SentMessages:
    """Those at the places, in this order."""
    return sent.view(_BYTES).take(places).view(SENT_DTYPE)


def is_delivered(sent: SentMessages) -> Flags:
    """Which rows tell a reader the truth, sooner or later."""
    fate = sent["fate"]
    told: Flags = (fate == DeliveryOutcome.ARRIVES) | (fate >= DeliveryOutcome.TWICE)
    return told
