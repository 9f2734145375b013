"""Upstreams of federation: the parameters `federation-upstream` and `federation-upstream-set`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.broker.parameters import UPSTREAM
from penstock.core.errors import PreconditionFailed
from penstock.core.linear_regex import LinearRegex
from penstock.federation.definition import (
    DEFAULT_PREFETCH,
    DEFAULT_RECONNECT_SECONDS,
    DefinitionReader,
    is_local,
)
from penstock.federation.transfer import AckMode
from penstock.wire.amqp091.address import parse_amqp_url

#: Settings of policies that select upstreams.
BY_NAME: Final = "federation-upstream"
BY_SET: Final = "federation-upstream-set"
BY_PATTERN: Final = "federation-upstream-pattern"
#: The set of all upstreams.
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Upstream:
    name: str
    uris: tuple[str, ...]
    prefetch: int = DEFAULT_PREFETCH
    reconnect_delay: int = DEFAULT_RECONNECT_SECONDS
    mode: AckMode = AckMode.ON_CONFIRM
    max_hops: int = 1
    expires: int | None = None  #: milliseconds after which the upstream deletes its unused queue
    message_ttl: int | None = None
    trust_user_id: bool = False
    exchange: str | None = None  #: None: the name of the downstream one
    queue: str | None = None
    keeps_queue: bool = False  #: the upstream's queue is not deleted with the link
    queue_type: str = "classic"

    @classmethod
    def parse(cls, name: str, value: Any) -> Upstream:
        """Raises `PreconditionFailed` with all reasons."""
        read = DefinitionReader(UPSTREAM, name, value)
        upstream = cls(
            name,
            read.uris("uri", _check_uri),
            read.number("prefetch-count", default=DEFAULT_PREFETCH, least=1) or DEFAULT_PREFETCH,
            read.number("reconnect-delay", default=DEFAULT_RECONNECT_SECONDS) or 0,
            read.mode(),
            read.number("max-hops", default=1, least=1) or 1,
            read.number("expires", least=1),
            read.number("message-ttl"),
            read.flag("trust-user-id"),
            read.text("exchange"),
            read.text("queue"),
            read.choice("resource-cleanup-mode", ("default", "never"), "default") == "never",
            read.choice("queue-type", ("classic", "quorum"), "classic"),
        )
        read.text("consumer-tag"), read.text("ha-policy"), read.flag("bind-nowait")
        read.choice("channel-use-mode", ("multiple", "single"), "multiple")
        read.finish()
        return upstream


def _check_uri(uri: str) -> None:
    if is_local(uri):
        raise PreconditionFailed("an upstream is another broker or virtual host: name its host")
    parse_amqp_url(uri)


def check_upstream_set(name: str, value: Any) -> None:
    if name == ALL:
        raise PreconditionFailed("Validation failed\n\n'all' is the set of all upstreams\n")
    entries = value if isinstance(value, list) else None
    if entries is None or not all(
        isinstance(entry, dict)
        and isinstance(entry.get("upstream"), str)
        and entry.keys() <= {"upstream", "exchange", "queue", "max-hops"}
        for entry in entries
    ):
        raise PreconditionFailed(
            "Validation failed\n\nan upstream set is a list of objects with 'upstream', and "
            "optionally 'exchange', 'queue' or 'max-hops'\n"
        )


def choose_upstreams(
    definition: Mapping[str, Any], upstreams: Mapping[str, Any], sets: Mapping[str, Any]
) -> Iterator[Upstream]:
    """The upstreams that a policy selects for a queue or an exchange."""
    if isinstance(name := definition.get(BY_NAME), str):
        if name in upstreams:
            yield Upstream.parse(name, upstreams[name])
    elif isinstance(pattern := definition.get(BY_PATTERN), str):
        try:
            regex = LinearRegex(pattern)
        except (re.error, ValueError):
            return
        for name, value in upstreams.items():
            if regex.search(name):
                yield Upstream.parse(name, value)
    elif definition.get(BY_SET) == ALL:
        for name, value in upstreams.items():
            yield Upstream.parse(name, value)
    elif isinstance(name := definition.get(BY_SET), str):
        for entry in sets.get(name, ()):
            value = upstreams.get(entry["upstream"])
            if value is not None:
                upstream = Upstream.parse(entry["upstream"], value)
                hops = entry.get("max-hops", upstream.max_hops)
                yield replace(
                    upstream,
                    exchange=entry.get("exchange", upstream.exchange),
                    queue=entry.get("queue", upstream.queue),
                    max_hops=hops if type(hops) is int and hops > 0 else upstream.max_hops,
                )
