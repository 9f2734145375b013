"""Where reading begins and ends: the language of `startingOffsets` and `endingOffsets`.

One position for all streams (`earliest`, `latest`, a moment), or a JSON object with one for each,
as Kafka's source has it. A moment is ISO 8601, UTC where no zone is given, or milliseconds since
1970; in the JSON object a number is an offset, and -2 and -1 are earliest and latest.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from penstock.core.errors import ConfigurationError, NotFound
from penstock.pipeline.brokers.contract import Offsets, Streams


class Kind(Enum):
    EARLIEST = "earliest"  #: the oldest message that is kept
    LATEST = "latest"  #: behind the newest
    OFFSET = "offset"  #: a place in the stream
    MOMENT = "moment"  #: the first message that came at that time or later


@dataclass(frozen=True, slots=True)
class Position:
    kind: Kind
    value: int = 0  #: the offset, or milliseconds since 1970


EARLIEST: Final = Position(Kind.EARLIEST)
LATEST: Final = Position(Kind.LATEST)
_KAFKAS: Final = {-2: EARLIEST, -1: LATEST}


@dataclass(frozen=True, slots=True)
class Positions:
    """A position for each stream; those that are not named have the default."""

    default: Position
    named: Mapping[str, Position] = field(default_factory=dict)

    def of(self, stream: str) -> Position:
        return self.named.get(stream, self.default)

    def settled(self, stream: str, offset: int, end: int) -> bool:
        """Whether asking again later would give the same, unless retention comes between."""
        match self.of(stream).kind:
            case Kind.EARLIEST | Kind.OFFSET:
                return True
            case Kind.MOMENT:
                return offset < end  # else it lies ahead, and what comes next will be behind it
            case Kind.LATEST:
                return False

    def resolve(self, streams: Streams, names: Collection[str]) -> dict[str, int]:
        """The offsets these positions are now; streams that are empty may be left out."""
        found: Offsets = {}
        by_kind: dict[Kind, list[str]] = {}
        for name in names:
            by_kind.setdefault(self.of(name).kind, []).append(name)
        if wanted := by_kind.get(Kind.EARLIEST):
            found |= streams.firsts(wanted)
        if wanted := by_kind.get(Kind.LATEST, []) + by_kind.get(Kind.OFFSET, []):
            ends = streams.ends(wanted, {})
            for name in ends:
                found[name] = self._checked(name, ends[name])
        for name in by_kind.get(Kind.MOMENT, []):
            found[name] = streams.at(name, self.of(name).value)
        if missing := [name for name in names if name not in found]:
            raise NotFound(
                f"streams: there is no stream {', '.join(map(repr, missing))}; declare it first, "
                "or use a pattern to read streams as they appear"
            )
        return {name: offset for name, offset in found.items() if offset is not None}

    def _checked(self, name: str, end: int | None) -> int | None:
        position = self.of(name)
        if position.kind is Kind.LATEST:
            return end
        next_offset = end or 0
        if position.value > next_offset:
            raise ConfigurationError(
                f"offset {position.value} of stream {name!r} is not there yet: the next is "
                f"{next_offset}"
            )
        return position.value


def parse_positions(text: str, option: str, default: Position) -> Positions:
    """Read an option's value; `default` is for streams that a JSON object does not name."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Positions(_position(stripped, option))
    try:
        given = json.loads(stripped)
    except ValueError as error:
        raise ConfigurationError(f"{option}: this is no JSON object: {error}") from None
    named = {name: _named_position(value, option) for name, value in given.items()}
    return Positions(default, named)


def _named_position(value: Any, option: str) -> Position:
    if isinstance(value, int) and not isinstance(value, bool):
        if value in _KAFKAS:
            return _KAFKAS[value]
        if value >= 0:
            return Position(Kind.OFFSET, value)
    elif isinstance(value, str):
        return _position(value, option)
    raise ConfigurationError(
        f"{option}: {value!r} is no position: should be an offset, -2 or earliest, -1 or latest, "
        "or a moment such as 2026-01-31T08:00:00Z"
    )


def _position(text: str, option: str) -> Position:
    match text:
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    if text.isascii() and text.isdigit():
        return Position(Kind.MOMENT, int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{option}: {text!r} is no position: should be earliest, latest, a moment such as "
            "2026-01-31T08:00:00Z or in milliseconds since 1970, or a JSON object with an offset "
            "for each stream"
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return Position(Kind.MOMENT, int(aware.timestamp() * 1000))
