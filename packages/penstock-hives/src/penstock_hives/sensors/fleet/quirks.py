"""What goes wrong with sensors, and how often. Each can be switched off by itself.

Chances of frames are for one frame, shares are of sensors, rates are per sensor and day. The
defaults are a fleet with its daily troubles; `Quirks.none()` is one that never was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from penstock.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Quirks:
    # What devices are like.
    plus_32: bool = True  #: v1 adds 32 to what it sends
    wraps: bool = True  #: devices have been counting for long, and their totals wrap
    unknown_wraps: bool = True  #: and nobody has written down where
    little_endian: float = 0.2  #: share
    swapped: float = 0.03  #: share that is mounted the wrong way round, known to the catalogue
    wrong_clocks: float = 0.05  #: share; most are minutes off, some a day or more
    v2: float = 0.1  #: share that speaks v2
    event: float = 0.1  #: share that sends events, one for each person
    # What devices do.
    restarts: float = 0.05  #: rate; what was not sent is forgotten
    flagged_restarts: float = 0.3  #: share whose first report says that it is the first
    missed: float = 0.002  #: chance that a person is not seen
    # What becomes of frames.
    loss: float = 0.01
    outages: float = 0.05  #: rate; up to two hours in which everything is lost
    duplicates: float = 0.005
    late: float = 0.005  #: arrives up to ten minutes after those sent later
    corrupt: float = 0.0005  #: arrives as something that is no message
    scrambled: float = 0.0  #: a v1 report with totals out of the blue

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            most = 100.0 if field.name in ("restarts", "outages") else 1.0
            if not 0.0 <= value <= most:
                raise ConfigurationError(f"quirk {field.name}={value}: should be 0 to {most:g}")
        if self.loss + self.duplicates + self.late + self.corrupt + self.scrambled > 1.0:
            raise ConfigurationError("quirks: the chances of frames add up to more than 1")
        if self.v2 + self.event > 1.0:
            raise ConfigurationError("quirks: v2 and event are shares of one fleet, 1 at most")

    @classmethod
    def none(cls) -> Quirks:
        """Nothing goes wrong; v1 only, big-endian, with the 32 that makes it v1."""
        chances = dict.fromkeys((f.name for f in fields(cls) if f.type == "float"), 0.0)
        return replace(cls(), wraps=False, unknown_wraps=False, **chances)  # type: ignore[arg-type]

    def changed(self, pairs: Sequence[str]) -> Quirks:
        """By `name=value`s, as people write them."""
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
