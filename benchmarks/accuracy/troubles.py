"""The troubles a fleet is put through, one after the other and all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_hives.sensors.fleet import Quirks

#: Devices that wrap, and clocks and mountings as they are; nothing happens to them or to frames.
_CALM: Final = Quirks(
    unknown_wraps=False,
    restarts=0,
    missed=0,
    loss=0,
    outages=0,
    duplicates=0,
    late=0,
    corrupt=0,
)
_ON_THE_WAY: Final = ("loss=0.03", "outages=0.1", "duplicates=0.01", "late=0.01")
_BAD_FRAMES: Final = ("corrupt=0.001", "scrambled=0.001")
_WEEKLY: Final = f"restarts={1 / 7}"


@dataclass(frozen=True, slots=True)
class Trouble:
    name: str
    quirks: Quirks


TROUBLES: Final = (
    Trouble("wraps only, known points", _CALM),
    Trouble("wraps only, unknown points", _CALM.changed(["unknown_wraps=on"])),
    Trouble("the same, two outages a day", _CALM.changed(["unknown_wraps=on", "outages=2"])),
    Trouble("loss, outages, duplicates, reordering", _CALM.changed(_ON_THE_WAY)),
    Trouble("these, weekly restarts", _CALM.changed([*_ON_THE_WAY, _WEEKLY])),
    Trouble("these, daily restarts", _CALM.changed([*_ON_THE_WAY, "restarts=1"])),
    Trouble("corrupt and scrambled frames", _CALM.changed(_BAD_FRAMES)),
    Trouble("a fleet's usual days", Quirks()),
    Trouble("everything at once", Quirks().changed([*_ON_THE_WAY, _WEEKLY, *_BAD_FRAMES])),
)
