"""Profiles of sensors, in a form that is sent to every Spark task.

`SensorProfiles` has the profiles as columns; a sensor is a row, found by its serial. It takes about
a hundred bytes a sensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.arrays import Flags, Numbers
from penstock_hives.sensors.protocol import ByteOrder, FirmwareProfile, SensorProtocol

PROFILE_SCHEMA: Final = pa.schema(
    [
        ("serial", pa.string()),
        ("sensor_id", pa.int64()),
        ("hive_id", pa.int64()),
        ("time_zone", pa.string()),
        ("protocol", pa.string()),
        ("direction_swapped", pa.bool_()),
        ("byte_order", pa.string()),
        ("wrap_at", pa.int64()),
        ("plus_32", pa.bool_()),
        ("event_counter", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class SensorProfile:
    serial: str
    sensor_id: int
    hive_id: int
    time_zone: str
    protocol: SensorProtocol = SensorProtocol.V1
    firmware: FirmwareProfile = field(default_factory=FirmwareProfile)
    direction_swapped: bool = False

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> SensorProfile:
        """Of table `sensor`, with the time zone of its hive."""
        return cls(
            serial=row["serial"],
            sensor_id=row["id"],
            hive_id=row["hive_id"],
            time_zone=row["time_zone"],
            protocol=SensorProtocol(row["protocol"]),
            firmware=FirmwareProfile.from_json(row["profile"]),
            direction_swapped=row["direction_swapped"],
        )

    def to_columns(self) -> dict[str, Any]:
        names = ("serial", "sensor_id", "hive_id", "time_zone", "direction_swapped")
        firmware = self.firmware
        return {
            **{name: getattr(self, name) for name in names},
            "protocol": self.protocol.value,
            "byte_order": firmware.byte_order.value,
            "wrap_at": firmware.wrap_at,
            "plus_32": firmware.plus_32,
            "event_counter": firmware.event_counter,
        }


class SensorProfiles:
    """By column; a sensor is a row."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.cast(PROFILE_SCHEMA).combine_chunks()

    @classmethod
    def of(cls, sensors: Iterable[SensorProfile]) -> SensorProfiles:
        return cls(pa.Table.from_pylist([each.to_columns() for each in sensors], PROFILE_SCHEMA))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return SensorProfiles, (self._table,)

    def rows(self, serials: pa.Array) -> Numbers:
        """The rows of these sensors; -1 for unknown serials."""
        found = pc.index_in(serials, value_set=self.serials)
        rows: Numbers = np.asarray(found.cast(pa.int64()).fill_null(-1))
        return rows

    @property
    def table(self) -> pa.Table:
        return self._table

    @cached_property
    def serials(self) -> pa.Array:
        return self._column("serial")

    @cached_property
    def sensor_ids(self) -> Numbers:
        return np.asarray(self._column("sensor_id"))

    @cached_property
    def hive_ids(self) -> Numbers:
        return np.asarray(self._column("hive_id"))

    @cached_property
    def zones(self) -> tuple[tuple[str, ...], Numbers]:
        """The names of the zones, and the zone of each sensor."""
        encoded = pc.dictionary_encode(self._column("time_zone"))
        return tuple(encoded.dictionary.to_pylist()), np.asarray(encoded.indices.cast(pa.int64()))

    @cached_property
    def swapped(self) -> Flags:
        return np.asarray(self._column("direction_swapped"))

    @cached_property
    def little(self) -> Flags:
        return np.asarray(pc.equal(self._column("byte_order"), ByteOrder.LITTLE.value))

    @cached_property
    def plain(self) -> Flags:
        """Sensors that do not add 32 to fields."""
        return ~np.asarray(self._column("plus_32"))

    @cached_property
    def wrap_at(self) -> Numbers:
        """-1 where it is unknown."""
        return np.asarray(self._column("wrap_at").fill_null(-1))

    @cached_property
    def event_counter(self) -> Flags:
        return np.asarray(self._column("event_counter"))

    def _column(self, name: str) -> pa.Array:
        column = self._table[name].combine_chunks()
        return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
