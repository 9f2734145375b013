"""The streams that a table is filled from: which there are, where they begin and end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from penstock.client.mqtt.topics import check_filter
from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock.wire.amqp091.address import AmqpAddress, parse_amqp_url
from penstock.wire.mqtt.topics import topic_to_routing_key
from penstock_spark.connector.options import (
    EARLIEST,
    OffsetSpecs,
    StreamSelection,
    parse_offset_specs,
)
from penstock_spark.landing.settings import LandingSettings
from penstock_spark.stream_declaration import StreamDeclaration, ensure_stream
from penstock_spark.streams.backend import Offsets
from penstock_spark.streams.endpoint import StreamEndpoint, find_endpoint

_MQTT_EXCHANGE: Final = "amq.topic"


@dataclass(slots=True)
class StreamSource:
    url: str
    selection: StreamSelection
    starting: OffsetSpecs
    mqtt: StreamDeclaration | None = None
    management: str | None = None
    stream_port: int | None = None
    _endpoint: StreamEndpoint | None = None

    @classmethod
    def of(
        cls,
        url: str,
        settings: LandingSettings,
        management: str | None = None,
        stream_port: int | None = None,
    ) -> StreamSource:
        names = settings.streams
        patterns: tuple[str, ...] = ()
        declaration = None
        if settings.mqtt is not None:
            declaration = _mqtt_declaration(settings.mqtt, names[0])
        else:
            patterns = tuple(each for each in names if any(sign in each for sign in "*?["))
        selection = StreamSelection(frozenset(names) - frozenset(patterns), patterns)
        starting = parse_offset_specs(settings.start, "start", EARLIEST)
        return cls(url, selection, starting, declaration, management, stream_port)

    @property
    def address(self) -> AmqpAddress:
        return parse_amqp_url(self.url)

    @property
    def endpoint(self) -> StreamEndpoint:
        if self._endpoint is None:
            if self.mqtt is not None:
                ensure_stream(self.url, self.mqtt)
            self._endpoint = find_endpoint(self.address, self.management, self.stream_port)
        return self._endpoint

    def forget_endpoint(self) -> None:
        """Look for the broker again: it may have moved."""
        self._endpoint = None

    def ends(self, known: Mapping[str, int | None]) -> Offsets:
        """The next offset of each stream; `known` are those of the last time."""
        with closing(self.endpoint.open()) as streams:
            names = self.selection.choose(streams)
            found = streams.next_offsets(names, known)
            if missing := [name for name in self.selection.names if name not in found]:
                self.starting.resolve(streams, missing)  # raises NotFound, and what to do
            return found

    def starts(self, names: Collection[str]) -> dict[str, int]:
        """The offsets from which a table without a position is filled."""
        with closing(self.endpoint.open()) as streams:
            return self.starting.resolve(streams, names)


def _mqtt_declaration(topic_filter: str, stream: str) -> StreamDeclaration:
    try:
        check_filter(topic_filter)
    except PreconditionFailed as error:
        raise ConfigurationError(f"mqtt {topic_filter!r}: {error}") from error
    if topic_filter.startswith("$"):
        raise ConfigurationError(
            f"mqtt {topic_filter!r}: topics that begin with $ are not published to a stream"
        )
    key = topic_to_routing_key(topic_filter.encode()).decode()
    return StreamDeclaration(stream, _MQTT_EXCHANGE, (key,))
