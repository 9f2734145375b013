"""The devices: what they count, and when they send it. Five minutes of all of them at a time.

Within its five minutes, the passages at a door are numbered; when the i-th of n happens, and how
many of the first i were entries, follows from i by arithmetic (`Passages`). So a report costs a few
array elements however many people it stands for, and whoever wants the people one by one
(`Passages.listed`) gets the very same.

A report is sent when as many passages were counted as the threshold says, or when nothing was sent
for the reporting interval. A restart happens at the beginning of five minutes: what was not sent is
forgotten and the totals begin at 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.hives.sensors.fleet.demand import SLOT_SECONDS
from penstock.hives.sensors.fleet.makings import EVENT, V2, Makings, Numbers
from penstock.hives.sensors.fleet.passages import SETTLE, SLOT, Passages
from penstock.hives.sensors.fleet.quirks import Quirks
from penstock.hives.sensors.fleet.sent import Form, Sensors, Sent, rows
from penstock.hives.sensors.messages.configuration import Configuration
from penstock.hives.sensors.messages.event import EventType
from penstock.hives.sensors.messages.report_type import ReportType

#: Of devices that send events, which need no timer.
_NEVER: Final = 1 << 60
_MINUTE: Final = 60_000
_STATUS_AFTER_START: Final = 200


class Devices:
    def __init__(self, makings: Makings, quirks: Quirks, start: int) -> None:
        count = len(makings)
        initial = Configuration()
        events = makings.protocol == EVENT
        self._makings = makings
        self._restarts = quirks.restarts * SLOT_SECONDS / 86_400
        self._fresh = not quirks.wraps
        self._form = np.select([makings.protocol == V2, events], [Form.REPORT2, Form.EVENT])
        self._threshold = np.where(events, 1, initial.event_threshold)
        self._interval = np.where(events, _NEVER, initial.report_interval_min * _MINUTE)
        self._status_interval = np.full(count, initial.status_interval_min * _MINUTE)
        self._pending = np.zeros(count, np.int64)
        self._last_sent = np.full(count, start)
        self._next_status = np.full(count, start)
        self._booted = np.full(count, start)
        self.discarded = np.zeros(count, np.int64)
        self.configuration_id = np.zeros(count, np.int64)
        self.total_in = makings.first_total.copy()
        self.total_out = makings.first_total[::-1] % makings.modulus
