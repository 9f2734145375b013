"""Addresses: what the source or the target of a link may be.

    /queue/NAME, NAME           a queue, declared (durable) if there is none
    /queues/NAME, /amq/queue/NAME   a queue that exists
    /stream/NAME                a stream, declared if there is none to send to
    /exchange/NAME[/KEY]        an exchange; what is sent without a key has its subject for one
    /exchanges/NAME[/KEY]       the same, as RabbitMQ 4 writes it
    /topic/KEY                  the topic exchange

A name alone that begins with `$` is a node of its own in other brokers (`$management`, `$cbs`), and
no queue is made of it.

Names are percent-encoded where they have a slash in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from penstock.broker.vhost import TOPIC_EXCHANGE
from penstock.wire.amqp10.errors import INVALID_FIELD, NOT_FOUND, LinkFault


@dataclass(frozen=True, slots=True)
class LinkAddress:
    """What an address names."""

    kind: str  #: "queue", "stream" or "exchange"
    name: str
    key: str | None = None  #: of an exchange; None when the address has none
    declares: bool = False  #: made if there is none


def parse_link_address(address: Any) -> LinkAddress:
    """Read an address; raises a fault of the link for one that names nothing."""
    if not isinstance(address, str):
        raise LinkFault(INVALID_FIELD, f"an address is a string, not {type(address).__name__}")
    if not address.startswith("/"):
        if address.startswith("$"):
            raise LinkFault(
                NOT_FOUND,
                f"there is no node '{address[:255]}': queues and exchanges are declared by AMQP "
                "0-9-1 or the management API; a queue of that name is /queue/NAME",
            )
        if address:
            return LinkAddress("queue", address, declares=True)
        raise LinkFault(NOT_FOUND, "an address that is empty names nothing")
    match address[1:].split("/"):
        case ["queue", name] if name:
            return LinkAddress("queue", _text(name), declares=True)
        case ["queues", name] | ["amq", "queue", name] if name:
            return LinkAddress("queue", _text(name))
        case ["stream", name] if name:
            return LinkAddress("stream", _text(name), declares=True)
        case ["exchange" | "exchanges", name]:
            return LinkAddress("exchange", _text(name))
        case ["exchange" | "exchanges", name, key]:
            return LinkAddress("exchange", _text(name), _text(key))
        case ["exchange", name, *rest]:
            return LinkAddress("exchange", _text(name), _text("/".join(rest)))
        case ["topic", *words] if words and words[0]:
            return LinkAddress("exchange", TOPIC_EXCHANGE, _text("/".join(words)))
    raise LinkFault(
        NOT_FOUND,
        f"'{address[:255]}' is no address: use /queue/NAME, /exchange/NAME[/KEY], /topic/KEY, "
        "/stream/NAME, or RabbitMQ's /queues/NAME and /exchanges/NAME[/KEY]",
    )


def queue_address(name: str) -> str:
    """The address of a queue that exists."""
    return f"/queues/{quote(name, safe='')}"


def _text(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise LinkFault(INVALID_FIELD, f"'{part[:255]}' is not percent-encoded UTF-8") from None
