"""The options of the connector, read once into values.

Names are Kafka's where Kafka has one. An option that is nearly one of ours is a slip of the pen
and refused; others are left to Spark, which hands its own along.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from penstock.core.errors import ConfigurationError
from penstock.pipeline.brokers.contract import Streams
from penstock.pipeline.brokers.opening import Door, find_door
from penstock.pipeline.connector.positions import (
    EARLIEST,
    LATEST,
    Kind,
    Positions,
    parse_positions,
)
from penstock.wire.amqp091.address import Address, parse_address

#: How long a broker that went away is waited for before a task, or the query, fails.
PATIENCE_SECONDS: Final = 60.0

_COMMON: Final = ("url", "tlsCaFile", "patienceSeconds")
_READ: Final = (
    *_COMMON,
    "streams",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "managementUrl",
    "streamPort",
)
_WRITE: Final = (*_COMMON, "exchange", "routingKey", "mandatory")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which streams: names, and patterns with `*`, `?` and `[…]`."""

    names: frozenset[str]
    patterns: tuple[str, ...]

    def choose(self, streams: Streams) -> list[str]:
        """The streams there are to read now; those named are taken to exist."""
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
    address: Address
    management: str | None
    stream_port: int | None
    selection: Selection
    starting: Positions
    ending: Positions
    max_offsets: int | None
    min_partitions: int | None
    fail_on_loss: bool
    patience: float

    def find_door(self) -> Door:
        return find_door(self.address, self.management, self.stream_port)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    address: Address
    exchange: str | None  #: for all rows, whatever their column says
    routing_key: str | None  #: likewise
    mandatory: bool  #: a message no queue takes is an error
    patience: float


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    _refuse_slips(options, _READ)
    text = options.get("startingOffsets", "latest" if streaming else "earliest")
    starting = parse_positions(text, "startingOffsets", EARLIEST)
    if not streaming and any(_kinds(starting, Kind.LATEST)):
        raise ConfigurationError("startingOffsets: latest leaves nothing to read in a batch")
    if streaming and "endingOffsets" in options:
        raise ConfigurationError("endingOffsets: a streaming query has no end; use spark.read")
    ending = parse_positions(options.get("endingOffsets", "latest"), "endingOffsets", LATEST)
    if any(_kinds(ending, Kind.EARLIEST)):
        raise ConfigurationError("endingOffsets: earliest leaves nothing to read")
    return ReadOptions(
        _address(options),
        options.get("managementUrl"),
        _port(options, "streamPort"),
        _selection(options.get("streams", "")),
        starting,
        ending,
        _count(options, "maxOffsetsPerTrigger"),
        _count(options, "minPartitions"),
        _flag(options, "failOnDataLoss", True),
        _patience(options),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    _refuse_slips(options, _WRITE)
    return WriteOptions(
        _address(options),
        options.get("exchange"),
        options.get("routingKey"),
        _flag(options, "mandatory", True),
        _patience(options),
    )


def _refuse_slips(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    ours = {name.lower(): name for name in known}
    for given in options:
        if given.lower() not in ours and (near := get_close_matches(given.lower(), ours, 1, 0.85)):
            raise ConfigurationError(f"there is no option {given!r}; is {ours[near[0]]!r} meant?")


def _kinds(positions: Positions, kind: Kind) -> list[bool]:
    return [each.kind is kind for each in (positions.default, *positions.named.values())]


def _address(options: Mapping[str, str]) -> Address:
    if "url" not in options:
        raise ConfigurationError("url: the broker's address is missing, as in amqp://localhost")
    return parse_address(options["url"], options.get("tlsCaFile"))


def _selection(text: str) -> Selection:
    """Names and patterns parted by commas, or a JSON array of names that hold what they like."""
    if text.lstrip().startswith('["'):
        names = _converted("streams", text, json.loads, 'a JSON array of names, as in ["a", "b"]')
        return Selection(frozenset(map(str, names)), ())
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise ConfigurationError(
            "streams: say which, as in 'sensors' or 'sensors-0,sensors-1' or 'sensors-*'"
        )
    patterns = tuple(item for item in items if any(sign in item for sign in "*?["))
    return Selection(frozenset(items) - frozenset(patterns), patterns)


def _count(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    count = _converted(name, options[name], int, "a whole number")
    if count < 1:
        raise ConfigurationError(f"{name}: {count} is too few; should be 1 or more")
    return count


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


def _patience(options: Mapping[str, str]) -> float:
    text = options.get("patienceSeconds", str(PATIENCE_SECONDS))
    return max(0.0, _converted("patienceSeconds", text, float, "a number of seconds"))


def _converted(name: str, text: str, convert: Callable[[str], _T], expected: str) -> _T:
    try:
        return convert(text)
    except ValueError:
        raise ConfigurationError(f"{name}: {text!r} should be {expected}") from None
