"""What each device is like, for good: drawn once from the seed, as the quirks say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.fleet.catalogue import Hive, Sensor, door_names
from penstock.hives.sensors.fleet.quirks import Quirks
from penstock.hives.sensors.messages.profile import WRAP_POINTS, ByteOrder, Profile, Protocol

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]

_PROTOCOLS: Final = (Protocol.V1, Protocol.V2, Protocol.EVENT)
V1, V2, EVENT = range(3)
_MINUTE: Final = 60_000
_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Makings:
    hive: Numbers  #: by its place in the list
    protocol: Numbers
    little: Flags
    modulus: Numbers  #: of the totals: one more than the wrap point
    flags_restarts: Flags
    swapped: Flags
    clock_error: Numbers  #: ms
    transit: Numbers  #: ms from the device to the broker, when all is well
    stagger: Numbers  #: thousandths, so that not all send a status at once
    first_in: Numbers  #: what it had counted before anything here began
    first_out: Numbers

    def __len__(self) -> int:
        return len(self.hive)


def make(hives: Sequence[Hive], quirks: Quirks, seed: int) -> Makings:
    rng = np.random.default_rng([seed, 3])
    hive = np.repeat(np.arange(len(hives)), [hive.doors for hive in hives])
    count = len(hive)
    lot = rng.random(count)
    protocol = np.where(lot < quirks.v2, V2, np.where(lot < quirks.v2 + quirks.event, EVENT, V1))
    wrap_at = rng.choice(WRAP_POINTS, count) if quirks.wraps else np.full(count, WRAP_POINTS[0])
    modulus = np.where(protocol == V2, 1 << 32, wrap_at + 1)
    before = rng.integers(0, 1 << 16, (2, count)) % modulus * quirks.wraps
    # Each lot is drawn whether it is needed or not, so that no quirk changes what another does.
    return Makings(
        hive=hive,
        protocol=protocol,
        little=(rng.random(count) < quirks.little_endian) & (protocol != V2),
        modulus=modulus,
        flags_restarts=(rng.random(count) < quirks.flagged_restarts) | (protocol == V2),
        swapped=rng.random(count) < quirks.swapped,
        clock_error=_clock_errors(count, quirks.wrong_clocks, rng),
        transit=rng.integers(80, 900, count),
        stagger=rng.integers(0, 1000, count),
        first_in=before[0],
        first_out=before[1],
    )


def _clock_errors(count: int, share: float, rng: np.random.Generator) -> Numbers:
    """Two in three wrong clocks are minutes off; the rest more than half a day, up to a year."""
    wrong = rng.random(count) < share
    near = rng.integers(1, 10, count, endpoint=True) * _MINUTE
    far = rng.integers(14 * 60 * _MINUTE, 365 * _DAY, count)
    error = np.where(rng.random(count) < 2 / 3, near, far)
    behind = rng.random(count) < 0.5
    return np.where(wrong, np.where(behind, -error, error), 0)


def register(hives: Sequence[Hive], makings: Makings, quirks: Quirks) -> tuple[Sensor, ...]:
    """The sensors as the system knows them."""
    doors = [(hive, door) for hive in hives for door in door_names(hive)]
    return tuple(
        Sensor(
            id=number + 1,
            hive_id=hive.id,
            serial=f"s{number + 1:05d}",
            name=f"{hive.name}, {door}",
            protocol=_PROTOCOLS[makings.protocol[number]],
            profile=_profile(makings, quirks, number),
            direction_swapped=bool(makings.swapped[number]),
        )
        for number, (hive, door) in enumerate(doors)
    )


def _profile(makings: Makings, quirks: Quirks, number: int) -> Profile:
    told = makings.protocol[number] == V1 and not quirks.unknown_wraps
    return Profile(
        byte_order=ByteOrder.LITTLE if makings.little[number] else ByteOrder.BIG,
        wrap_at=int(makings.modulus[number]) - 1 if told else None,
        plus_32=quirks.plus_32,
        event_counter=bool(makings.protocol[number] == EVENT),
    )
