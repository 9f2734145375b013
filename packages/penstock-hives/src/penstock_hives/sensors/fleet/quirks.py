"""Faults of sensors and their frequency. Each can be switched off.

Probabilities are per frame, shares are of sensors, rates are per sensor and day. The defaults are
those of a realistic fleet; `Quirks.none()` has no faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from penstock.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Quirks:
    # Properties of devices.
    plus_32: bool = True  #: v1 adds 32 to fields
    wraps: bool = True  #: totals start anywhere and wrap
    unknown_wraps: bool = True  #: profiles do not have the wrap points
    little_endian: float = 0.2  #: share
    swapped: float = 0.03  #: share mounted in the other direction, as the catalogue says
    wrong_clocks: float = 0.05  #: share; most are minutes off, some more than half a day
    v2: float = 0.1  #: share that sends reports v2
    event: float = 0.1  #: share that sends events, one for each person
    # Behaviour of devices.
    restarts: float = 0.05  #: rate; unsent counts are lost
    flagged_restarts: float = 0.3  #: share whose first report has type START
    missed: float = 0.002  #: probability that a person is not detected
    # Delivery of frames.
    loss: float = 0.01
    outages: float = 0.05  #: rate; up to two hours without delivery
    duplicates: float = 0.005
    late: float = 0.005  #: arrives up to ten minutes later, after later frames
    corrupt: float = 0.0005  #: arrives as an invalid message
    scrambled: float = 0.0  #: a v1 report with random totals

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            most = 100.0 if field.name in ("restarts", "outages") else 1.0
            if not 0.0 <= value <= most:
                raise ConfigurationError(f"quirk {field.name}={value}: should be 0 to {most:g}")
        if self.loss + self.duplicates + self.late + self.corrupt + self.scrambled > 1.0:
            raise ConfigurationError(
                "quirks: loss, duplicates, late, corrupt and scrambled add up to more than 1"
            )
        if self.v2 + self.event > 1.0:
            raise ConfigurationError("quirks: the shares v2 and event add up to more than 1")

    @classmethod
    def none(cls) -> Quirks:
        """No faults; v1 only, big-endian, with 32 added."""
        chances = dict.fromkeys((f.name for f in fields(cls) if f.type == "float"), 0.0)
        return replace(cls(), wraps=False, unknown_wraps=False, **chances)  # type: ignore[arg-type]

    def changed(self, pairs: Sequence[str]) -> Quirks:
        return replace(self, **dict(map(_read, pairs)))  # type: ignore[arg-type]


def _read(pair: str) -> tuple[str, bool | float]:
    name, _, text = pair.partition("=")
    kinds = {field.name: field.type for field in fields(Quirks)}
    if name not in kinds:
        raise ConfigurationError(f"no quirk {name!r}; there are {', '.join(kinds)}")
    words = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
    value = words.get(text.lower())
    if value is not None and (kinds[name] == "bool" or not value):
        return name, value
    try:
        number = float(text)
    except ValueError:
        raise ConfigurationError(f"quirk {pair!r}: should be {name}=NUMBER or {name}=off") from None
    return name, bool(number) if kinds[name] == "bool" else number
