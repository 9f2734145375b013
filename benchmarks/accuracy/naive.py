"""The rule that suggests itself: a total that fell means that the device has started again.

It is given every advantage: copies and reports that were overtaken are left out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock_hives.occupancy.profiles import SensorProfiles


class Naive:
    def __init__(self, profiles: SensorProfiles) -> None:
        self._profiles = profiles
        self._swapped = profiles.swapped.tolist()
        self._last: dict[int, tuple[int, int, int]] = {}
        self.sums = np.zeros((2, len(profiles)), np.int64)

    def count(self, rows: pa.Table) -> None:
        """Rows of reports, in the order of their stream."""
        sensors = self._profiles.rows(rows["sensor"].combine_chunks()).tolist()
        columns = (rows[name].cast(pa.int64()) for name in ("total_in", "total_out", "device_utc"))
        readings = zip(*(column.to_pylist() for column in columns), strict=True)
        for sensor, (total_in, total_out, utc) in zip(sensors, readings, strict=True):
            last_in, last_out, newest = self._last.get(sensor, (total_in, total_out, 0))
            if utc <= newest:
                continue
            self._last[sensor] = (total_in, total_out, utc)
            if total_in < last_in or total_out < last_out:
                last_in = last_out = 0
            ways = (1, 0) if self._swapped[sensor] else (0, 1)
            self.sums[ways[0], sensor] += total_in - last_in
            self.sums[ways[1], sensor] += total_out - last_out
