"""Events, one for each person: who counts, and who has been counted already.

An event that comes again is the same eight bytes among the last of its sensor: they hold the second,
the distance in mm and often a counter, so that two people are never taken for one. An event that was
overtaken counts like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.messages import EventType
from penstock.hives.steps.quality import Quality
from penstock.hives.steps.states import States

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Bodies = NDArray[np.uint64]

#: How far back a second copy is looked for.
REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class Events:
    """By sensor and then in the order of their stream."""

    sensor: Numbers
    type: Numbers
    body: Bodies  #: all eight bytes

    def __len__(self) -> int:
        return len(self.sensor)


@dataclass(frozen=True, slots=True)
class Counted:
    delta_in: Numbers
    delta_out: Numbers
    quality: Numbers


def count_events(events: Events, states: States) -> Counted:
    again = _again(events, states)
    return Counted(
        (~again & (events.type == EventType.ENTRY)).astype(np.int64),
        (~again & (events.type == EventType.EXIT)).astype(np.int64),
        np.where(again, int(Quality.DUPLICATE), 0),
    )


def _again(events: Events, states: States) -> Flags:
    """Which bodies are among the last of their sensor; what is remembered moves on."""
    held = len(states.recent)
    owner = np.concatenate([states.recent_of, events.sensor])
    body = np.concatenate([states.recent, events.body])
    # What is remembered came before: a stable sort puts it in front, sensor by sensor.
    by_sensor = np.argsort(owner, kind="stable")
    owner, body = owner[by_sensor], body[by_sensor]
    place = np.arange(len(owner))
    alike = np.lexsort((place, body, owner))
    same = np.zeros(len(owner), bool)
    same[1:] = (
        (owner[alike][1:] == owner[alike][:-1])
        & (body[alike][1:] == body[alike][:-1])
        & (np.diff(alike) <= REMEMBERED)
    )
    again = np.zeros(len(owner), bool)
    again[by_sensor[alike]] = same
    ends = np.searchsorted(owner, owner, "right")
    kept = ends - place <= REMEMBERED
    states.recent, states.recent_of = body[kept], owner[kept]
    return again[held:]
