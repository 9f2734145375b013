"""Addresses of link sources and targets.

    /queue/NAME, NAME           a queue, declared (durable) if it does not exist
    /queues/NAME, /amq/queue/NAME   an existing queue
    /stream/NAME                a stream, declared if it does not exist and the client sends
    /exchange/NAME[/KEY]        an exchange; without KEY the subject is the routing key
    /exchanges/NAME[/KEY]       the same, as RabbitMQ 4 writes it
    /topic/KEY                  the topic exchange

A bare name that begins with `$` is a special node in other brokers (`$management`, `$cbs`) and is
refused. Slashes in names are percent-encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from penstock.broker.vhost import TOPIC_EXCHANGE
from penstock.wire.amqp10.errors import INVALID_FIELD, NOT_FOUND, LinkFault


@dataclass(frozen=True, slots=True)
class LinkAddress:
    kind: str  #: "queue", "stream" or "exchange"
    name: str
    key: str | None = None  #: of an exchange
    declares: bool = False  #: declared if it does not exist


def parse_link_address(address: Any) -> LinkAddress:
    if not isinstance(address, str):
        raise LinkFault(INVALID_FIELD, f"address must be a string, not {type(address).__name__}")
    if not address.startswith("/"):
        if address.startswith("$"):
            raise LinkFault(
                NOT_FOUND,
                f"no node '{address[:255]}': queues and exchanges are declared by AMQP "
                "0-9-1 or the management API; a queue of that name is /queue/NAME",
            )
        if address:
            return LinkAddress("queue", address, declares=True)
        raise LinkFault(NOT_FOUND, "the address is empty")
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
        f"'{address[:255]}' is not an address: use /queue/NAME, /exchange/NAME[/KEY], /topic/KEY, "
        "/stream/NAME, or RabbitMQ's /queues/NAME and /exchanges/NAME[/KEY]",
    )


def queue_address(name: str) -> str:
    return f"/queues/{quote(name, safe='')}"


def _text(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise LinkFault(INVALID_FIELD, f"'{part[:255]}' is not percent-encoded UTF-8") from None
