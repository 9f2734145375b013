"""Message counters and diffs: what a device knows of the messages it sent before.

Only reports v2 and events carry them. They are filled in for many messages at once, in the order
these were sent; devices keep counting over a restart.
"""

from __future__ import annotations

import numpy as np

from penstock.hives.sensors.fleet.passages import counted_up
from penstock.hives.sensors.fleet.sent import Form, Sent
from penstock.hives.sensors.messages.report_type import ReportType


class Numbering:
    def __init__(self, sensors: int) -> None:
        self._sent = np.zeros(sensors, np.int64)
        self._last = np.zeros((2, sensors), np.int64)

    def number(self, sent: Sent) -> None:
        forms = sent["form"]
        numbered = np.flatnonzero((forms == Form.REPORT2) | (forms == Form.EVENT))
        if not len(numbered):
            return
        numbered = numbered[np.argsort(sent["sensor"][numbered], kind="stable")]
        sensors, counts = np.unique(sent["sensor"][numbered], return_counts=True)
        place = counted_up(counts)
        sent["counter"][numbered] = np.repeat(self._sent[sensors], counts) + place & 0xFFFF
        self._sent[sensors] += counts
        first = place == 0
        for direction, way in enumerate(("in", "out")):
            total = sent[f"total_{way}"][numbered]
            before = np.roll(total, 1)
            before[first] = self._last[direction, sensors]
            diff = np.where(sent["type"][numbered] == ReportType.START, 0, total - before)
            sent[f"diff_{way}"][numbered] = diff & 0xFFFF
            self._last[direction, sensors] = total[np.cumsum(counts) - 1]
