"""Totals of devices whose byte order is not what their profile says.

A report of type START has totals of 0, hence 32 on the wire, and so proves its byte order; from
there on the sensor's totals are read by it, until another proof. Totals were decoded by the
profile: turning the two bytes of what was on the wire makes them right. Firmware that does not flag
its starts proves nothing beyond doubt, for a report of 8160 twice looks the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.messages.report import PLUS
from penstock.hives.steps.states import States

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]

BIG: Final = 1
LITTLE: Final = 2


@dataclass(frozen=True, slots=True)
class Turned:
    total_in: Numbers
    total_out: Numbers
    rows: Flags


def turn(
    sensor: Numbers,
    totals: tuple[Numbers, Numbers],
    proved: Numbers,
    read_as: Numbers,
    turnable: Flags,
    states: States,
) -> Turned | None:
    """The totals in the order that was proved, if any were read in another.

    `proved` is the order a row proves, 0 most often; `read_as` the one it was decoded in;
    `turnable` marks reports v1 with 32 added, of which alone there are proofs."""
    proof = (proved != 0) & turnable
    if not (proof.any() or states.order[sensor].any()):
        return None
    # For each row, the last proof up to it: of its own sensor, or what the state has.
    place = np.maximum.accumulate(np.where(proof, np.arange(len(sensor)), -1))
    own = (place >= 0) & (sensor[np.maximum(place, 0)] == sensor)
    order = np.where(own, proved[np.maximum(place, 0)], states.order[sensor])
    states.order[sensor] = order  # of several rows of a sensor, the last stays
    rows = turnable & (order != 0) & (order != read_as)
    if not rows.any():
        return None
    total_in, total_out = (np.where(rows, _other_way(total), total) for total in totals)
    return Turned(total_in, total_out, rows)


def _other_way(total: Numbers) -> Numbers:
    wire = total + PLUS & 0xFFFF
    turned: Numbers = ((wire & 0xFF) << 8 | wire >> 8) - PLUS & 0xFFFF
    return turned
