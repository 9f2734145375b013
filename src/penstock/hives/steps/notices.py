"""What the data have told about devices, and an operator should know of.

None of it needs an answer for counts to be right: what was learned is in the states already. It is
told once, by the batch in which it was learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.hives.sensors.messages import ByteOrder
from penstock.hives.steps.states import States
from penstock.hives.steps.wraps import UNKNOWN

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]

NOTICES: Final = pa.schema(
    [("sensor", pa.string()), ("notice", pa.string()), ("detail", pa.string())]
)

#: By the numbers of `orders`.
ORDERS: Final = ("", ByteOrder.BIG.value, ByteOrder.LITTLE.value)


class Notice(StrEnum):
    BYTE_ORDER_PROVED = "byte_order_proved"  #: other than the profile's; totals are read by it
    BYTE_ORDER_DOUBTFUL = "byte_order_doubtful"  #: what may be a start-up report is of another
    WRAP_AT_LEARNED = "wrap_at_learned"  #: seen to wrap there, and no profile says where it does
    WRAP_AT_EXCLUDED = "wrap_at_excluded"  #: totals above the wrap point of the profile


@dataclass(frozen=True, slots=True)
class Before:
    """What was known, to tell what is new."""

    order: Numbers
    learned_top: Numbers
    seen: Numbers

    @classmethod
    def of(cls, states: States) -> Before:
        return cls(states.order.copy(), states.learned_top.copy(), states.seen.copy())


def notices(
    before: Before,
    after: States,
    serials: pa.Array,
    *,
    read_as: Numbers,
    wrap_at: Numbers,
    doubtful: Numbers,
) -> pa.RecordBatch:
    """By sensor: the byte order and wrap point of its profile, and the order that a report of old
    firmware hints at, 0 if none does."""
    proved = (after.order != before.order) & (after.order != 0) & (after.order != read_as)
    learned = (after.learned_top != before.learned_top) & (after.learned_top != UNKNOWN)
    excluded = (wrap_at != UNKNOWN) & (before.seen <= wrap_at) & (after.seen > wrap_at)
    told: list[tuple[int, str, str]] = []
    for sensor in np.flatnonzero(proved).tolist():
        told.append((sensor, Notice.BYTE_ORDER_PROVED, ORDERS[after.order[sensor]]))
    for sensor in np.flatnonzero((doubtful != 0) & (doubtful != after.order)).tolist():
        told.append((sensor, Notice.BYTE_ORDER_DOUBTFUL, ORDERS[doubtful[sensor]]))
    for sensor in np.flatnonzero(learned).tolist():
        told.append((sensor, Notice.WRAP_AT_LEARNED, str(after.learned_top[sensor])))
    for sensor in np.flatnonzero(excluded).tolist():
        told.append((sensor, Notice.WRAP_AT_EXCLUDED, str(wrap_at[sensor])))
    columns = [
        serials.take(pa.array([sensor for sensor, _, _ in told], pa.int64())),
        pa.array([str(notice) for _, notice, _ in told], pa.string()),
        pa.array([detail for _, _, detail in told], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=NOTICES)
