"""The client: messaging patterns over AMQP 0-9-1, AMQP 1.0 and MQTT.

    async with connect("amqp://localhost") as fabric:
        await fabric.publish("prices.oil", {"usd": 61})
        reply = await fabric.request("square", 7)

`penstock.client.blocking_client` has the same without `async`. `docs/client.md` describes it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Loaded on first use: programs that need one module of this package, such as Spark's workers, start
# without the patterns.
_MODULES = {
    "Fabric": "fabric",
    "connect": "fabric",
    "ReceivedMessage": "message",
    "MessageReceiver": "receiver",
    "MessageSender": "sender",
    "RequestService": "service",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
