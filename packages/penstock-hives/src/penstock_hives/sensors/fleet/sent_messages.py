"""Messages of devices before they are encoded: one row for each message.

A row has the time it was sent and its delivery outcome. A status has its start-up time and
configuration id in the fields of totals.
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
        ("at", "i8"),  # sent, Unix ms of the true time
        ("arrives", "i8"),  # at the broker, Unix ms
        ("sensor", "i4"),
        ("utc_offset", "i4"),  # seconds
        ("total_in", "i8"),  # since the start, before wrapping
        ("total_out", "i8"),
        ("diff_in", "i4"),
        ("diff_out", "i4"),
        ("random", "u4"),  # for random choices later
        ("counter", "u2"),
        ("form", "u1"),
        ("type", "u1"),
        ("outcome", "u1"),
        ("dateless", "?"),
    ],
    align=True,  # for speed
)
_BYTES: Final = np.dtype(f"V{SENT_DTYPE.itemsize}")


class MessageForm(IntEnum):
    REPORT = 0
    REPORT2 = 1
    EVENT = 2
    STATUS = 3


class DeliveryOutcome(IntEnum):
    DELIVERED = 0
    LOST = 1
    DAMAGED = 2  #: arrives as an invalid message
    SCRAMBLED = 3  #: arrives with random totals
    DUPLICATED = 4
    LATE = 5


def make_messages(sensor: Numbers, **values: Any) -> SentMessages:
    made = np.zeros(len(sensor), SENT_DTYPE)
    made["sensor"] = sensor
    for name, value in values.items():
        made[name] = value
    return made


def concat_messages(parts: Sequence[SentMessages]) -> SentMessages:
    """NumPy copies records field by field, but bytes at once."""
    return np.concatenate([part.view(_BYTES) for part in parts]).view(SENT_DTYPE)


def take_messages(sent: SentMessages, rows: Numbers) -> SentMessages:
    return sent.view(_BYTES).take(rows).view(SENT_DTYPE)


def is_delivered(sent: SentMessages) -> Flags:
    """Which messages arrive unchanged, now or later."""
    outcome = sent["outcome"]
    delivered: Flags = (outcome == DeliveryOutcome.DELIVERED) | (
        outcome >= DeliveryOutcome.DUPLICATED
    )
    return delivered
