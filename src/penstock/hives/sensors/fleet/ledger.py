"""What was counted, what a reader can know of it, and what nobody can: by sensor, from the start.

*Counted* is what the device saw. *Lost* is what no delivered frame carries and none ever will:
counts a device forgot in a restart before a report of them arrived, and events that did not arrive.
*Known* is what a perfect reader of all delivered frames can know. What is left is *open*: counted,
and still to be told by the next report that arrives.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.hives.sensors.fleet.passages import Passages
from penstock.hives.sensors.fleet.sent import Form, Sent, delivered
from penstock.hives.sensors.messages.event import EventType

Numbers = NDArray[np.int64]


class Ledger:
    def __init__(self, first_in: Numbers, first_out: Numbers) -> None:
        nothing = np.zeros_like(first_in)
        self._counted = np.stack([nothing, nothing])
        self._lost = np.stack([nothing, nothing])
        #: How much of what was counted is settled: known or lost.
        self._settled = np.stack([nothing, nothing])
        #: What had been counted here when the device's own totals were 0.
        self._zero = -np.stack([first_in, first_out])

    def restarted(self, sensors: Numbers) -> Numbers:
        """They forgot what they had not told; returns how much, in and out."""
        forgot = np.zeros_like(self._lost)
        forgot[:, sensors] = self._counted[:, sensors] - self._settled[:, sensors]
        self._lost += forgot
        self._settled += forgot
        self._zero[:, sensors] = self._counted[:, sensors]
        return forgot

    def counted(self, passages: Passages) -> None:
        self._counted[0] += passages.entries
        self._counted[1] += passages.exits

    def told(self, sent: Sent) -> Numbers:
        """Frames with their fates, in the order they were sent; returns what was lost with them."""
        arrived = delivered(sent)
        report = np.flatnonzero(arrived & (sent["form"] <= Form.REPORT2))
        sensor = sent["sensor"][report]
        # Of several reports of a sensor the last stays, and tells most.
        self._settled[0, sensor] = self._zero[0, sensor] + sent["total_in"][report]
        self._settled[1, sensor] = self._zero[1, sensor] + sent["total_out"][report]
        event = np.flatnonzero(sent["form"] == Form.EVENT)
        gone = np.zeros_like(self._lost)
        if len(event):
            way = np.where(sent["type"][event] == EventType.ENTRY, 0, 1)
            np.add.at(self._settled, (way, sent["sensor"][event]), 1)
            missing = ~arrived[event]
            np.add.at(gone, (way[missing], sent["sensor"][event][missing]), 1)
            self._lost += gone
        return gone

    def to_arrow(self, serials: pa.Array) -> pa.RecordBatch:
        figures = {
            "counted": self._counted,
            "known": self._settled - self._lost,
            "lost": self._lost,
            "open": self._counted - self._settled,
        }
        columns = {
            f"{name}_{way}": pa.array(figure[direction])
            for name, figure in figures.items()
            for direction, way in enumerate(("in", "out"))
        }
        return pa.RecordBatch.from_pydict({"sensor": serials, **columns})
