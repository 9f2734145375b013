"""Posts from a broker: what to bind to, over AMQP or MQTT.

A queue has a name that lasts, so that what is announced while we are away waits, and that several
instances share it. It is bound to each exchange by the topics that are asked for; consumers of all
of them take from the same queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from penstock.client import Fabric, Inflow
from penstock.pump.posts.topics import mqtt_filter

MQTT: Final = ("mqtt", "mqtts", "ws", "wss")


@dataclass(frozen=True, slots=True)
class Binding:
    exchange: str
    prefix: str = "v02.post"
    subtopic: str = "#"


def over_mqtt(url: str) -> bool:
    return urlsplit(url).scheme in MQTT


def hear(
    fabric: Fabric, url: str, bindings: Sequence[Binding], queue: str, prefetch: int
) -> list[Inflow]:
    """Inflows of one queue, or one session; a share of it where several instances run."""
    if over_mqtt(url):
        filters = [mqtt_filter(each.exchange, each.prefix, each.subtopic) for each in bindings]
        return [fabric.subscribe(*filters, name=queue, prefetch=prefetch)]
    exchanges = dict.fromkeys(each.exchange for each in bindings)
    return [
        fabric.subscribe(
            *(f"{each.prefix}.{each.subtopic}" for each in bindings if each.exchange == exchange),
            name=queue,
            exchange=exchange,
            prefetch=prefetch,
        )
        for exchange in exchanges
    ]
