"""From rows to bytes: the columnar counterpart of the codecs, with the devices' own oddities.

The scalar codecs read what this writes, and a test says so. Devices wrap their totals, may be
mounted the wrong way round and have clocks that are wrong: that is applied here, to what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.columns import events, reports2, statuses
from penstock.hives.sensors.fleet.makings import Makings
from penstock.hives.sensors.fleet.sent import Fate, Form, Sent
from penstock.hives.sensors.messages import event, report, report2, status

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

#: By `Form`.
LENGTHS: Final = np.array([report.NOMINAL, report2.LENGTH, event.LENGTH, status.LENGTH])

_CENTURY: Final = np.arange("2000-01-01", "2100-01-01", dtype="datetime64[D]")
_FIRST_DAY: Final = int(_CENTURY[0].astype(np.int64))
_MONTHS: Final = _CENTURY.astype("datetime64[M]")
#: Year, month and day of every day of the century, as a report has them.
_DATES: Final = np.stack(
    [
        _CENTURY.astype("datetime64[Y]").astype(np.int64) - 30,
        _MONTHS.astype(np.int64) % 12 + 1,
        (_CENTURY - _MONTHS).astype(np.int64) + 1,
    ],
    axis=1,
).astype(np.uint8)
_U32: Final = (1 << 32) - 1
_FIRMWARE: Final = int.from_bytes((1, 4, 2, 0), "big")
_FULL_BATTERY: Final = 4200
_SIGNAL: Final = (-107, 50)


class Encoder:
    def __init__(self, makings: Makings, plus_32: bool, start: int) -> None:
        self._makings = makings
        self._plus = report.PLUS if plus_32 else 0
        self._start = start

    def encode(self, form: Form, sent: Sent) -> Bytes:
        """A matrix, a row for each; all have to be of this form."""
        match form:
            case Form.REPORT:
                return self._reports(sent)
            case Form.REPORT2:
                return self._reports2(sent)
            case Form.EVENT:
                return self._events(sent)
            case Form.STATUS:
                return self._statuses(sent)

    def _reports(self, sent: Sent) -> Bytes:
        body = np.zeros((len(sent), report.NOMINAL), np.uint8)
        totals = self._totals(sent)
        scrambled = sent["fate"] == Fate.SCRAMBLED
        dice = sent["dice"][scrambled].astype(np.int64)
        totals[scrambled, 0], totals[scrambled, 1] = dice & 0xFFFF, dice >> 16
        wire = ((totals + self._plus) & 0xFFFF).astype(">u2")
        little = self._makings.little[sent["sensor"]]
        wire[little] = wire[little].byteswap()
        # The diffs repeat the totals: no mistake of ours, but the devices'.
        body[:, 0:4] = body[:, 4:8] = wire.view(np.uint8).reshape(-1, 4)
        clock = self._clock(sent) + sent["utc_offset"]
        day, second = np.divmod(clock, 86_400)
        body[:, 8:11] = _DATES[np.clip(day - _FIRST_DAY, 0, len(_DATES) - 1)]
        body[:, 11] = second // 3600
        body[:, 12] = second // 60 % 60
        body[:, 13] = second % 60
        body[:, 8:14] += np.uint8(self._plus)
        body[sent["dateless"], 8:14] = 0
        body[:, 14] = sent["type"]
        body[:, 15] = 0xFF
        return body

    def _reports2(self, sent: Sent) -> Bytes:
        made = np.zeros(len(sent), reports2.LAYOUT)
        swapped = self._makings.swapped[sent["sensor"]]
        totals = self._totals(sent)
        made["version"] = report2.VERSION
        made["total_in"], made["total_out"] = totals.T
        for way, other in (("diff_in", "diff_out"), ("diff_out", "diff_in")):
            made[way] = np.where(swapped, sent[other], sent[way]) & 0xFFFF
        for name in ("type", "counter"):
            made[name] = sent[name]
        made["time"] = np.clip(self._clock(sent), 0, _U32)
        made["utc_offset"] = sent["utc_offset"] // int(report2.QUARTER.total_seconds())
        body = made.view(np.uint8).reshape(-1, report2.LENGTH)
        made["checksum"] = reports2.crc(body[:, : report2.CHECKED])
        return body

    def _events(self, sent: Sent) -> Bytes:
        swapped = self._makings.swapped[sent["sensor"]]
        fields = {
            "type": np.where(swapped, 1 - sent["type"].astype(np.int64), sent["type"]),
            "distance": 400 + sent["dice"] % 1600,
            "counter": sent["counter"] & 0xFF,
            "device_utc": np.clip(self._clock(sent), 0, _U32),
        }
        return self._pack(events.LAYOUT, fields, sent)

    def _statuses(self, sent: Sent) -> Bytes:
        hours = (sent["at"] - self._start) // 3_600_000
        weakest, better = _SIGNAL
        fields = {
            "startup": sent["total_in"] + self._makings.clock_error[sent["sensor"]] // 1000,
            "battery": np.maximum(_FULL_BATTERY - hours // 8, 3000),
            "sensor_state": np.ones(len(sent), np.int64),
            "discarded_events": sent["diff_in"] & 0xFFFF,
            "signal": weakest + (sent["sensor"] * 7 + sent["dice"] % 5) % better,
            "firmware": np.full(len(sent), _FIRMWARE),
            "configuration_id": sent["total_out"],
        }
        return self._pack(statuses.LAYOUT, fields, sent)

    def _totals(self, sent: Sent) -> Numbers:
        """In and out, as the device has them: wrapped, and perhaps the wrong way round."""
        sensor = sent["sensor"]
        totals = np.stack([sent["total_in"], sent["total_out"]], axis=1)
        totals %= self._makings.modulus[sensor][:, None]
        swapped = self._makings.swapped[sensor]
        totals[swapped] = totals[swapped, ::-1]
        return totals

    def _clock(self, sent: Sent) -> Numbers:
        """Unix seconds, as the device believes."""
        clock: Numbers = (sent["at"] + self._makings.clock_error[sent["sensor"]]) // 1000
        return clock

    def _pack(
        self, layout: Sequence[tuple[str, str]], fields: dict[str, Numbers], sent: Sent
    ) -> Bytes:
        bodies = []
        for sign in "><":
            made = np.zeros(len(sent), [(name, sign + kind) for name, kind in layout])
            for name, values in fields.items():
                made[name] = values
            bodies.append(made.view(np.uint8).reshape(len(sent), -1))
        big, little = bodies
        return np.where(self._makings.little[sent["sensor"]][:, None], little, big)
