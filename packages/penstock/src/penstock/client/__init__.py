"""The client: messaging patterns over AMQP 0-9-1, AMQP 1.0 and MQTT.

    async with connect("amqp://localhost") as fabric:
        await fabric.publish("prices.oil", {"usd": 61})
        reply = await fabric.request("square", 7)

`penstock.client.blocking_client` has the same without `async`. `docs/client.md` describes it.
"""

from penstock.client.errors import (
    BrokerUnreachable,
    FabricClosed,
    NoReply,
    NoService,
    RemoteError,
    UnknownScheme,
)
from penstock.client.fabric import Fabric, connect
from penstock.client.message import ReceivedMessage
from penstock.client.receiver import MessageReceiver
from penstock.client.sender import MessageSender
from penstock.client.service import RequestService

__all__ = [
    "BrokerUnreachable",
    "Fabric",
    "FabricClosed",
    "MessageReceiver",
    "MessageSender",
    "NoReply",
    "NoService",
    "ReceivedMessage",
    "RemoteError",
    "RequestService",
    "UnknownScheme",
    "connect",
]
