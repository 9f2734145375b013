"""Sizes and durations with units.

`64MiB`, `1.5 GB`, `10s`, `500ms` become numbers (bytes, seconds) and are printed in the shortest
exact form. Other texts raise `ValueError` with the accepted forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from penstock.core.settings_model import Before

KiB: Final = 1 << 10
MiB: Final = 1 << 20
GiB: Final = 1 << 30

_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": KiB,
    "mib": MiB,
    "gib": GiB,
    "tib": 1 << 40,
}
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: Longer numbers would overflow.
_QUANTITY: Final = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*")


def parse_count(text: str, most: int = (1 << 63) - 1) -> int | None:
    """A whole number in ASCII digits, from 0 to `most`; None for any other text.

    For numbers from peers: `str.isdigit` accepts digits that `int` does not read, and `int` raises
    for thousands of digits.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None


def parse_bytes(text: str) -> int:
    number, factor = _read(text, _BYTES, "a size such as 65536, 64KiB, 16MiB or 2GB")
    return round(number * factor)


def parse_seconds(text: str) -> float:
    number, factor = _read(text, _SECONDS, "a duration such as 10s, 500ms, 5m, 2h or 1d")
    return number * factor


def format_bytes(size: int) -> str:
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = _BYTES[unit.lower()]
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def format_seconds(seconds: float) -> str:
    for unit in ("d", "h", "m"):
        factor = _SECONDS[unit]
        if seconds >= factor and seconds % factor == 0:
            return f"{int(seconds / factor)}{unit}"
    return f"{seconds:g}s"


def _read(
    text: str, factors: Mapping[str, int] | Mapping[str, float], allowed: str
) -> tuple[float, float]:
    match = _QUANTITY.fullmatch(text)
    factor = factors.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"should be {allowed}")
    # Integers stay integers, so that large sizes are exact.
    return (float(match[1]) if "." in match[1] else int(match[1])), factor


class Unit:
    """Annotates a setting's type with the format of its value."""

    __slots__ = ("format",)

    def __init__(self, form: Callable[[Any], str]) -> None:
        self.format = form


def _bytes(value: object) -> object:
    return parse_bytes(value) if isinstance(value, str) else value


def _seconds(value: object) -> object:
    return parse_seconds(value) if isinstance(value, str) else value


#: Settings types: a number, or a text with a unit.
Bytes = Annotated[int, Before(_bytes), Unit(format_bytes)]
Seconds = Annotated[float, Before(_seconds), Unit(format_seconds)]
WholeSeconds = Annotated[int, Before(_seconds), Unit(format_seconds)]
