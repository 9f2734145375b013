"""The client without `async`.

The same names, with `with` and `for` where the other has `async with` and `async for`. A fabric
runs the asynchronous one on an event loop in a thread of its own, so connections are kept alive
while the program is busy elsewhere; any thread may use it. Ctrl-C ends a wait at once.

    with connect("amqp://localhost") as fabric:
        fabric.publish("prices.oil", {"usd": 61})
        for item in fabric.pull("work"):
            ...
"""

from penstock.client.blocking.fabric import Fabric, Handler, connect
from penstock.client.blocking.flows import Inflow, Outflow, Receipt, Service
from penstock.client.blocking.message import Message

__all__ = ["Fabric", "Handler", "Inflow", "Message", "Outflow", "Receipt", "Service", "connect"]
