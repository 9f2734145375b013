"""The options of the connector.

Names are Kafka's where Kafka has one. A reader refuses a name that it does not know. A writer
refuses one that is nearly an option; it ignores others, because Spark passes its own options along.

The syntax of `startingOffsets` and `endingOffsets`: one position for all streams (`earliest`,
`latest`, a time), or a JSON object with one for each, as in Kafka's source. A time is ISO 8601, UTC
without a zone, or milliseconds since 1970; in the JSON object a number is an offset, and -2 and -1
are earliest and latest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from penstock.core.errors import ConfigurationError, NotFound
from penstock.core.units import parse_bytes
from penstock.wire.amqp091.address import AmqpAddress, parse_amqp_url
from penstock_spark.streams.backend import Offsets, StreamBackend
from penstock_spark.streams.endpoint import StreamEndpoint, find_endpoint

#: How long to retry while the broker is unavailable, before a task or the query fails.
DEFAULT_RETRY_SECONDS: Final = 60.0

#: `patienceSeconds` is the former name of `retrySeconds`.
_COMMON: Final = ("url", "tlsCaFile", "retrySeconds", "patienceSeconds")
_READ: Final = (
    *_COMMON,
    "streams",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "managementUrl",
    "streamPort",
)
_WRITE: Final = (*_COMMON, "exchange", "routingKey", "mandatory")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StreamSelection:
    """Names, and patterns with `*`, `?` and `[…]`."""

    names: frozenset[str]
    patterns: tuple[str, ...]

    def choose(self, streams: StreamBackend) -> list[str]:
        """The streams to read now; named ones are assumed to exist."""
        if not self.patterns:
            return sorted(self.names)
        matching = {
            name
            for name in streams.names()
            if any(fnmatchcase(name, pattern) for pattern in self.patterns)
        }
        return sorted(self.names | matching)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    address: AmqpAddress
    management: str | None
    stream_port: int | None
    selection: StreamSelection
    starting: OffsetSpecs
    ending: OffsetSpecs
    max_offsets: int | None
    max_bytes: int | None
    min_partitions: int | None
    fail_on_loss: bool
    retry_seconds: float

    def find_endpoint(self) -> StreamEndpoint:
        return find_endpoint(self.address, self.management, self.stream_port)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    address: AmqpAddress
    exchange: str | None  #: overrides the column
    routing_key: str | None  #: overrides the column
    mandatory: bool  #: an unroutable message is an error
    retry_seconds: float


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    _reject_unknown(options, _READ, strict=True)
    starting = _offset_specs(options, "starting", LATEST if streaming else EARLIEST, EARLIEST)
    if not streaming and any(_kinds(starting, OffsetKind.LATEST)):
        raise ConfigurationError("startingOffsets: latest leaves nothing to read in a batch")
    for name in _refused(streaming):
        if name in options:
            raise ConfigurationError(
                f"{name}: a streaming query has no end; use spark.read"
                if streaming
                else f"{name}: a batch query has no triggers; use endingOffsets"
            )
    ending = _offset_specs(options, "ending", LATEST, LATEST)
    if any(_kinds(ending, OffsetKind.EARLIEST)):
        raise ConfigurationError("endingOffsets: earliest leaves nothing to read")
    return ReadOptions(
        _address(options),
        options.get("managementUrl"),
        _port(options, "streamPort"),
        _selection(options.get("streams", "")),
        starting,
        ending,
        _count(options, "maxOffsetsPerTrigger"),
        _size(options, "maxBytesPerTrigger"),
        _count(options, "minPartitions"),
        _flag(options, "failOnDataLoss", True),
        _retry_seconds(options),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    _reject_unknown(options, _WRITE)
    return WriteOptions(
        _address(options),
        options.get("exchange"),
        options.get("routingKey"),
        _flag(options, "mandatory", True),
        _retry_seconds(options),
    )


def _refused(streaming: bool) -> tuple[str, ...]:
    """Options of the other kind of query."""
    if streaming:
        return ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    return ("maxOffsetsPerTrigger", "maxBytesPerTrigger")


def _offset_specs(
    options: Mapping[str, str], edge: str, default: OffsetSpec, unnamed: OffsetSpec
) -> OffsetSpecs:
    """The value of one of three options, for `starting` or `ending`."""
    names = (f"{edge}Offsets", f"{edge}Timestamp", f"{edge}OffsetsByTimestamp")
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise ConfigurationError(f"{' and '.join(given)}: only one of them can be set")
    if not given:
        return OffsetSpecs(default)
    text = options[given[0]].strip()
    if given[0] == names[0]:
        return parse_offset_specs(text, names[0], unnamed)
    if given[0] == names[1]:
        return OffsetSpecs(_parse_moment(text, names[1]))
    moments = _json_object(text, names[2])
    return OffsetSpecs(
        unnamed, {name: _parse_moment(str(value), names[2]) for name, value in moments.items()}
    )


def _reject_unknown(
    options: Mapping[str, str], known: tuple[str, ...], strict: bool = False
) -> None:
    ours = {name.lower(): name for name in known}
    for given in options:
        if given.lower() in ours:
            continue
        if near := get_close_matches(given.lower(), ours, 1, 0.85):
            raise ConfigurationError(f"unknown option {given!r}; did you mean {ours[near[0]]!r}?")
        if strict:
            raise ConfigurationError(f"unknown option {given!r}; there are {', '.join(known)}")


def _kinds(positions: OffsetSpecs, kind: OffsetKind) -> list[bool]:
    return [each.kind is kind for each in (positions.default, *positions.named.values())]


def _address(options: Mapping[str, str]) -> AmqpAddress:
    if "url" not in options:
        raise ConfigurationError("url: the broker's address is missing, as in amqp://localhost")
    return parse_amqp_url(options["url"], options.get("tlsCaFile"))


def _selection(text: str) -> StreamSelection:
    """Names and patterns separated by commas, or a JSON array of arbitrary names."""
    if text.lstrip().startswith('["'):
        names = _converted("streams", text, json.loads, 'a JSON array of names, as in ["a", "b"]')
        return StreamSelection(frozenset(map(str, names)), ())
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise ConfigurationError(
            "streams: missing; should be as in 'sensors' or 'sensors-0,sensors-1' or 'sensors-*'"
        )
    patterns = tuple(item for item in items if any(sign in item for sign in "*?["))
    return StreamSelection(frozenset(items) - frozenset(patterns), patterns)


def _count(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    count = _converted(name, options[name], int, "a whole number")
    if count < 1:
        raise ConfigurationError(f"{name}: {count} is too few; should be 1 or more")
    return count


def _size(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    size = _converted(name, options[name], parse_bytes, "a size such as 67108864 or 64MiB")
    if size < 1:
        raise ConfigurationError(f"{name}: {size} is too few; should be 1 or more")
    return size


def _port(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    port = _converted(name, options[name], int, "a port, or 0 for none")
    if not 0 <= port <= 65_535:
        raise ConfigurationError(f"{name}: {port} is no port")
    return port


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name}: {text!r} should be true or false")
    return text == "true"


def _retry_seconds(options: Mapping[str, str]) -> float:
    old = "retrySeconds" not in options and "patienceSeconds" in options
    name = "patienceSeconds" if old else "retrySeconds"
    text = options.get(name, str(DEFAULT_RETRY_SECONDS))
    return max(0.0, _converted(name, text, float, "a number of seconds"))


def _converted(name: str, text: str, convert: Callable[[str], _T], expected: str) -> _T:
    try:
        return convert(text)
    except ValueError:
        raise ConfigurationError(f"{name}: {text!r} should be {expected}") from None


class OffsetKind(Enum):
    EARLIEST = "earliest"  #: the oldest message
    LATEST = "latest"  #: after the newest message
    OFFSET = "offset"  #: an offset
    MOMENT = "moment"  #: the first message at that time or later


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    kind: OffsetKind
    value: int = 0  #: the offset, or milliseconds since 1970


EARLIEST: Final = OffsetSpec(OffsetKind.EARLIEST)
LATEST: Final = OffsetSpec(OffsetKind.LATEST)
_KAFKA_OFFSETS: Final = {-2: EARLIEST, -1: LATEST}


@dataclass(frozen=True, slots=True)
class OffsetSpecs:
    """A position for each stream."""

    default: OffsetSpec
    named: Mapping[str, OffsetSpec] = field(default_factory=dict)

    def of(self, stream: str) -> OffsetSpec:
        return self.named.get(stream, self.default)

    def settled(self, stream: str, offset: int, end: int) -> bool:
        """Whether a later query would give the same offset, apart from retention."""
        match self.of(stream).kind:
            case OffsetKind.EARLIEST | OffsetKind.OFFSET:
                return True
            case OffsetKind.MOMENT:
                return offset < end  # else it is in the future
            case OffsetKind.LATEST:
                return False

    def resolve(self, streams: StreamBackend, names: Collection[str]) -> dict[str, int]:
        """The current offsets of the positions; empty streams may be omitted."""
        found: Offsets = {}
        by_kind: dict[OffsetKind, list[str]] = {}
        for name in names:
            by_kind.setdefault(self.of(name).kind, []).append(name)
        if wanted := by_kind.get(OffsetKind.EARLIEST):
            found |= streams.first_offsets(wanted)
        if wanted := by_kind.get(OffsetKind.LATEST, []) + by_kind.get(OffsetKind.OFFSET, []):
            ends = streams.next_offsets(wanted, {})
            for name in ends:
                found[name] = self._checked(name, ends[name])
        for name in by_kind.get(OffsetKind.MOMENT, []):
            found[name] = streams.offset_at(name, self.of(name).value)
        if missing := [name for name in names if name not in found]:
            raise NotFound(
                f"streams: no stream {', '.join(map(repr, missing))}; declare it first, "
                "or use a pattern to read streams as they appear"
            )
        return {name: offset for name, offset in found.items() if offset is not None}

    def _checked(self, name: str, end: int | None) -> int | None:
        position = self.of(name)
        if position.kind is OffsetKind.LATEST:
            return end
        next_offset = end or 0
        if position.value > next_offset:
            raise ConfigurationError(
                f"offset {position.value} of stream {name!r} does not exist yet: the next is "
                f"{next_offset}"
            )
        return position.value


def parse_offset_specs(text: str, option: str, default: OffsetSpec) -> OffsetSpecs:
    """Parse the value of an option; `default` is for streams missing in a JSON object."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return OffsetSpecs(_parse_offset_spec(stripped, option))
    given = _json_object(stripped, option)
    named = {name: _json_offset_spec(value, option) for name, value in given.items()}
    return OffsetSpecs(default, named)


def _json_object(text: str, option: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: invalid JSON object: {error}") from None
    if not isinstance(given, dict):
        raise ConfigurationError(f"{option}: {text} should be a JSON object with a value by stream")
    return given


def _json_offset_spec(value: Any, option: str) -> OffsetSpec:
    if isinstance(value, int) and not isinstance(value, bool):
        if value in _KAFKA_OFFSETS:
            return _KAFKA_OFFSETS[value]
        if value >= 0:
            return OffsetSpec(OffsetKind.OFFSET, value)
    elif isinstance(value, str):
        return _parse_offset_spec(value, option)
    raise ConfigurationError(
        f"{option}: {value!r} is not a position: should be an offset, -2 or earliest, -1 or "
        "latest, or a time such as 2026-01-31T08:00:00Z"
    )


def _parse_offset_spec(text: str, option: str) -> OffsetSpec:
    match text:
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    try:
        return _parse_moment(text, option)
    except ConfigurationError:
        raise ConfigurationError(
            f"{option}: {text!r} is not a position: should be earliest, latest, a time such as "
            "2026-01-31T08:00:00Z or in milliseconds since 1970, or a JSON object with an offset "
            "for each stream"
        ) from None


def _parse_moment(text: str, option: str) -> OffsetSpec:
    if text.isascii() and text.isdigit():
        return OffsetSpec(OffsetKind.MOMENT, int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{option}: {text!r} is not a time: should be as 2026-01-31T08:00:00Z, or in "
            "milliseconds since 1970"
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return OffsetSpec(OffsetKind.MOMENT, int(aware.timestamp() * 1000))
