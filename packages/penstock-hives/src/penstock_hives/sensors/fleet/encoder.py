"""Frames of the simulated fleet: message counters, encoding, damage, packing into Arrow batches.

The columnar counterpart of the codecs in `protocol`; a test decodes its frames with them. Wrapped
totals, swapped directions, wrong clocks and damaged frames are applied here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from penstock_hives.arrays import Bytes, Numbers
from penstock_hives.sensors.columnar import messages as events
from penstock_hives.sensors.columnar import messages as statuses
from penstock_hives.sensors.columnar import reports
from penstock_hives.sensors.fleet.devices import (
    DeliveryOutcome,
    DeviceTraits,
    MessageForm,
    SentMessages,
    take_messages,
)
from penstock_hives.sensors.fleet.visitors import count_up
from penstock_hives.sensors.protocol import messages as event
from penstock_hives.sensors.protocol import messages as status
from penstock_hives.sensors.protocol import report
from penstock_hives.sensors.protocol.report import ReportType
from penstock_hives.sensors.protocol.topic import SensorMessageKind, SensorTopic

#: By `MessageForm`.
FRAME_LENGTHS: Final = np.array(
    [
        report.REPORT_NOMINAL_LENGTH,
        report.REPORT_V2_LENGTH,
        event.EVENT_LENGTH,
        status.STATUS_LENGTH,
    ]
)

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


class FrameEncoder:
    def __init__(self, traits: DeviceTraits, plus_32: bool, start: int) -> None:
        self._traits = traits
        self._plus = report.FIELD_OFFSET if plus_32 else 0
        self._start = start

    def encode(self, form: MessageForm, sent: SentMessages) -> Bytes:
        """A row for each message; all have this form."""
        match form:
            case MessageForm.REPORT:
                return self._reports(sent)
            case MessageForm.REPORT2:
                return self._reports2(sent)
            case MessageForm.EVENT:
                return self._events(sent)
            case MessageForm.STATUS:
                return self._statuses(sent)

    def _reports(self, sent: SentMessages) -> Bytes:
        body = np.zeros((len(sent), report.REPORT_NOMINAL_LENGTH), np.uint8)
        totals = self._totals(sent)
        scrambled = sent["outcome"] == DeliveryOutcome.SCRAMBLED
        random = sent["random"][scrambled].astype(np.int64)
        totals[scrambled, 0], totals[scrambled, 1] = random & 0xFFFF, random >> 16
        wire = ((totals + self._plus) & 0xFFFF).astype(">u2")
        little = self._traits.little[sent["sensor"]]
        wire[little] = wire[little].byteswap()
        # The diffs repeat the totals, as the firmware does.
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

    def _reports2(self, sent: SentMessages) -> Bytes:
        made = np.zeros(len(sent), reports.REPORT_V2_LAYOUT)
        swapped = self._traits.swapped[sent["sensor"]]
        totals = self._totals(sent)
        made["version"] = report.REPORT_V2_VERSION
        made["total_in"], made["total_out"] = totals.T
        for way, other in (("diff_in", "diff_out"), ("diff_out", "diff_in")):
            made[way] = np.where(swapped, sent[other], sent[way]) & 0xFFFF
        for name in ("type", "counter"):
            made[name] = sent[name]
        made["time"] = np.clip(self._clock(sent), 0, _U32)
        made["utc_offset"] = sent["utc_offset"] // int(report.QUARTER_HOUR.total_seconds())
        body = made.view(np.uint8).reshape(-1, report.REPORT_V2_LENGTH)
        made["checksum"] = reports.crc16(body[:, : report.REPORT_V2_CHECKED_LENGTH])
        return body

    def _events(self, sent: SentMessages) -> Bytes:
        swapped = self._traits.swapped[sent["sensor"]]
        fields = {
            "type": np.where(swapped, 1 - sent["type"].astype(np.int64), sent["type"]),
            "distance": 400 + sent["random"] % 1600,
            "counter": sent["counter"] & 0xFF,
            "device_utc": np.clip(self._clock(sent), 0, _U32),
        }
        return self._pack(events.EVENT_LAYOUT, fields, sent)

    def _statuses(self, sent: SentMessages) -> Bytes:
        hours = (sent["at"] - self._start) // 3_600_000
        weakest, better = _SIGNAL
        fields = {
            "startup": sent["total_in"] + self._traits.clock_error[sent["sensor"]] // 1000,
            "battery": np.maximum(_FULL_BATTERY - hours // 8, 3000),
            "sensor_state": np.ones(len(sent), np.int64),
            "discarded_events": sent["diff_in"] & 0xFFFF,
            "signal": weakest + (sent["sensor"] * 7 + sent["random"] % 5) % better,
            "firmware": np.full(len(sent), _FIRMWARE),
            "configuration_id": sent["total_out"],
        }
        return self._pack(statuses.STATUS_LAYOUT, fields, sent)

    def _totals(self, sent: SentMessages) -> Numbers:
        """In and out as the device counts: wrapped, and swapped if it is mounted so."""
        sensor = sent["sensor"]
        totals = np.stack([sent["total_in"], sent["total_out"]], axis=1)
        totals %= self._traits.modulus[sensor][:, None]
        swapped = self._traits.swapped[sensor]
        totals[swapped] = totals[swapped, ::-1]
        return totals

    def _clock(self, sent: SentMessages) -> Numbers:
        clock: Numbers = (sent["at"] + self._traits.clock_error[sent["sensor"]]) // 1000
        return clock

    def _pack(
        self, layout: Sequence[tuple[str, str]], fields: dict[str, Numbers], sent: SentMessages
    ) -> Bytes:
        bodies = []
        for sign in "><":
            made = np.zeros(len(sent), [(name, sign + kind) for name, kind in layout])
            for name, values in fields.items():
                made[name] = values
            bodies.append(made.view(np.uint8).reshape(len(sent), -1))
        big, little = bodies
        return np.where(self._traits.little[sent["sensor"]][:, None], little, big)


class MessageCounters:
    def __init__(self, sensors: int) -> None:
        self._sent = np.zeros(sensors, np.int64)
        self._last = np.zeros((2, sensors), np.int64)

    def number(self, sent: SentMessages) -> None:
        forms = sent["form"]
        numbered = np.flatnonzero((forms == MessageForm.REPORT2) | (forms == MessageForm.EVENT))
        if not len(numbered):
            return
        numbered = numbered[np.argsort(sent["sensor"][numbered], kind="stable")]
        sensors, counts = np.unique(sent["sensor"][numbered], return_counts=True)
        index = count_up(counts)
        sent["counter"][numbered] = np.repeat(self._sent[sensors], counts) + index & 0xFFFF
        self._sent[sensors] += counts
        first = index == 0
        for direction, way in enumerate(("in", "out")):
            total = sent[f"total_{way}"][numbered]
            before = np.roll(total, 1)
            before[first] = self._last[direction, sensors]
            diff = np.where(sent["type"][numbered] == ReportType.START, 0, total - before)
            sent[f"diff_{way}"][numbered] = diff & 0xFFFF
            self._last[direction, sensors] = total[np.cumsum(counts) - 1]


#: Offset of the type; a status has none.
_TYPE_AT: Final = {MessageForm.REPORT: 14, MessageForm.EVENT: 0}
_NO_TYPE: Final = 0x55


def damage_frame(form: MessageForm, body: bytes, random: int) -> bytes:
    how, much = random % 3, random // 3
    if how == 0:
        # Shorter than any valid message.
        return body[: much % min(len(body), report.REPORT_MIN_LENGTH)]
    if how == 1:
        return body + bytes(1 + report.REPORT_MAX_LENGTH + much % 64)
    if form is MessageForm.REPORT2:
        at = 2 + much % 20
        return body[:at] + bytes((body[at] ^ 1 << much % 8,)) + body[at + 1 :]
    if form is MessageForm.STATUS:
        return body[: much % len(body)]
    at = _TYPE_AT[form]
    return body[:at] + bytes((_NO_TYPE,)) + body[at + 1 :]


FRAME_SCHEMA: Final = pa.schema(
    [
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("routing_key", pa.dictionary(pa.int32(), pa.string())),
        ("body", pa.binary()),
    ]
)
_KINDS: Final = (SensorMessageKind.REPORT, SensorMessageKind.EVENT, SensorMessageKind.STATUS)
#: The kind of each form.
_KIND_OF: Final = np.array([0, 0, 1, 2], np.int32)


class FramePacker:
    def __init__(self, serials: Sequence[str], encoder: FrameEncoder) -> None:
        self._encoder = encoder
        self._keys = pa.array(
            [SensorTopic(serial, kind).routing_key for serial in serials for kind in _KINDS]
        )

    def pack(self, sent: SentMessages) -> pa.RecordBatch:
        key = sent["sensor"] * np.int32(len(_KINDS)) + _KIND_OF[sent["form"]]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(sent["arrives"]).cast(FRAME_SCHEMA.field("timestamp").type),
                pa.DictionaryArray.from_arrays(pa.array(key), self._keys),
                self._bodies(sent),
            ],
            schema=FRAME_SCHEMA,
        )

    def _bodies(self, sent: SentMessages) -> pa.Array:
        encoded = [
            (rows, self._encoder.encode(form, take_messages(sent, rows)))
            for form in MessageForm
            if len(rows := np.flatnonzero(sent["form"] == form))
        ]
        lengths = FRAME_LENGTHS[sent["form"]]
        damaged = dict(self._damaged(sent, encoded))
        for row, body in damaged.items():
            lengths[row] = len(body)
        ends = np.zeros(len(sent) + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        # Padding, so that a window over the last bytes exists for every length.
        data = np.zeros(ends[-1] + FRAME_LENGTHS.max(), np.uint8)
        for rows, bodies in encoded:
            whole = sent["outcome"][rows] != DeliveryOutcome.DAMAGED
            windows = sliding_window_view(data, bodies.shape[1], writeable=True)
            windows[ends[rows[whole]]] = bodies[whole]
        for row, body in damaged.items():
            data[ends[row] : ends[row + 1]] = np.frombuffer(body, np.uint8)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(sent), buffers)

    def _damaged(
        self, sent: SentMessages, encoded: Sequence[tuple[Numbers, Bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """Damaged frames by row; they are few."""
        for rows, bodies in encoded:
            for index in np.flatnonzero(sent["outcome"][rows] == DeliveryOutcome.DAMAGED):
                row = int(rows[index])
                form, random = MessageForm(sent["form"][row]), int(sent["random"][row])
                yield row, damage_frame(form, bodies[index].tobytes(), random)
