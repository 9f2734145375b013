"""`python -m benchmarks.content.headers`: equalities alone, beside RabbitMQ's headers exchange.

Some thousand bindings of three equalities each lead to one queue. What is measured is the CPU time
a broker spends on a message, once its bindings are there: RabbitMQ and Penstock by a headers
exchange, and Penstock by an `x-content` exchange with the same said as subscriptions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import pika
import typer

from benchmarks.content.workloads import equalities_wanted, quotes
from benchmarks.peers import Peer, available, start_penstock, start_rabbitmq
from penstock.content import Subscription, format_message

#: What binds a subscription: the arguments of its binding.
Spell = Callable[[Subscription], dict[str, Any]]


def as_headers(subscription: Subscription) -> dict[str, Any]:
    asked = {predicate.attribute: predicate.operand for predicate in subscription.predicates}
    return {"x-match": "all", "class": subscription.class_name, **asked}


def as_content(subscription: Subscription) -> dict[str, Any]:
    return {"x-subscription": format_message(subscription)}


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    start: Callable[[Path], Peer]
    exchange: str
    spell: Spell


WAYS: Final = (
    Way("RabbitMQ, headers", start_rabbitmq, "headers", as_headers),
    Way("Penstock, headers", start_penstock, "headers", as_headers),
    Way("Penstock, x-content", start_penstock, "x-content", as_content),
)


def measure(way: Way, bindings: int, messages: int, seed: int = 1) -> float:
    """CPU seconds that a broker spends on a message."""
    with tempfile.TemporaryDirectory() as directory:
        peer = way.start(Path(directory))
        try:
            return _measure(peer, way, bindings, messages, seed)
        finally:
            peer.close()


def _measure(peer: Peer, way: Way, bindings: int, messages: int, seed: int) -> float:
    random = Random(seed)
    address = pika.ConnectionParameters("127.0.0.1", peer.port, heartbeat=0)
    with pika.BlockingConnection(address) as connection:
        channel = connection.channel()
        channel.exchange_declare("quotes", way.exchange)
        channel.queue_declare("found", exclusive=True, arguments={"x-max-length": 1})
        for _ in range(bindings):
            channel.queue_bind("found", "quotes", "", way.spell(equalities_wanted(random)))
        before = peer.usage().cpu_seconds
        for quote in islice(quotes(random), messages):
            texts = {n: v for n, v in quote.attributes.items() if isinstance(v, str)}
            headers = {"class": quote.class_name, **texts}
            channel.basic_publish("quotes", "", b"", pika.BasicProperties(headers=headers))
        # Answered behind all that was published on the channel.
        channel.queue_declare("found", passive=True)
        return (peer.usage().cpu_seconds - before) / messages


def main(
    bindings: Annotated[int, typer.Option(help="How many there are.")] = 2000,
    messages: Annotated[int, typer.Option(help="How many are published.")] = 2000,
) -> None:
    """Publish to each kind of exchange, and say what it cost."""
    print(table(bindings, messages))


def table(bindings: int = 2000, messages: int = 2000) -> str:
    """What each way costs, of those that this machine has."""
    lines = ["| exchange | bindings | CPU/message |", "|---|--:|--:|"]
    for way in WAYS:
        if way.start is start_rabbitmq and not available("rabbitmq"):
            continue
        spent = measure(way, bindings, messages)
        lines.append(f"| {way.name} | {bindings:,} | {spent * 1e6:,.0f} µs |")
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(main)
