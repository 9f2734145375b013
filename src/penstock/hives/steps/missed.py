"""How many messages did not arrive, by the counters of those that did.

A message tells how many are missing between the one that arrived before it and itself; one that was
overtaken tells that one less is. So the sum is what never came, in whatever order the others did,
as long as fewer are lost at a time than the counter counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.states import NOTHING, States

Numbers = NDArray[np.int64]


def count_missed(
    sensor: Numbers, counter: Numbers, modulus: Numbers, utc: Numbers, states: States
) -> Numbers:
    """Of messages with a counter, by sensor and then in their order, without duplicates."""
    missed = np.zeros(len(sensor), np.int64)
    if not len(sensor):
        return missed
    begins = np.flatnonzero(np.diff(sensor, prepend=NOTHING))
    before, earlier = np.roll(counter, 1), np.roll(utc, 1)
    before[begins] = states.counter[sensor[begins]]
    earlier[begins] = states.counter_utc[sensor[begins]]
    ahead = (counter - before) % modulus
    # A step of more than half the counter is a step back, unless time says that it went on.
    back = (utc < earlier) | ((utc == earlier) & (ahead > modulus // 2))
    back &= ahead > 0
    missed = np.where(back, ahead - modulus, ahead) - 1
    missed[ahead == 0] += modulus[ahead == 0]
    missed[before == NOTHING] = 0
    ends = np.append(begins[1:], len(sensor)) - 1
    states.counter[sensor[ends]] = counter[ends]
    states.counter_utc[sensor[ends]] = utc[ends]
    return missed
