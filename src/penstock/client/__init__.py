"""The client: messaging patterns over any broker that speaks a protocol we do.

    async with connect("amqp://localhost") as fabric:
        await fabric.publish("prices.oil", {"usd": 61})
        answer = await fabric.request("square", 7)

`penstock.client.blocking` has the same without `async`. `docs/client.md` shows all of it.
"""

from penstock.client.errors import (
    BrokerUnreachable,
    FabricClosed,
    NoReply,
    NoService,
    RemoteError,
    UnknownScheme,
)
from penstock.client.fabric import Fabric, Inflow, Outflow, Service
from penstock.client.message import Message
from penstock.client.schemes import connect

__all__ = [
    "BrokerUnreachable",
    "Fabric",
    "FabricClosed",
    "Inflow",
    "Message",
    "NoReply",
    "NoService",
    "Outflow",
    "RemoteError",
    "Service",
    "UnknownScheme",
    "connect",
]
