"""Messages that come again, of sensors that number them or send one for each person.

A copy is told by its content alone: an event by all its eight bytes, a report v2 by its number and
totals. It is looked for among the last messages of its sensor, so that others may come in between.
Reports v1 have nothing of the kind, and the rules for totals do without.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.states import States

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Contents = NDArray[np.uint64]

#: How many messages of a sensor are remembered: a minute of a door that is never still.
REMEMBERED: Final = 64


def repeated(sensor: Numbers, content: Contents, states: States) -> Flags:
    """Which messages, by sensor and then in their order, are copies. The states remember them."""
    held = len(states.recent)
    owner = np.concatenate([states.recent_of, sensor])
    every = np.concatenate([states.recent, content])
    # What is remembered came before: a stable sort puts it in front, sensor by sensor.
    by_sensor = np.argsort(owner, kind="stable")
    owner, every = owner[by_sensor], every[by_sensor]
    alike = np.lexsort((every, owner))  # stable as well: the same contents are in order
    same = np.zeros(len(owner), bool)
    same[1:] = (
        (owner[alike[1:]] == owner[alike[:-1]])
        & (every[alike[1:]] == every[alike[:-1]])
        & (np.diff(alike) <= REMEMBERED)
    )
    again = np.zeros(len(owner), bool)
    again[by_sensor[alike]] = same
    ends = np.searchsorted(owner, owner, "right")
    kept = ends - np.arange(len(owner)) <= REMEMBERED
    states.recent, states.recent_of = every[kept], owner[kept]
    return again[held:]
