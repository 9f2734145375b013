"""One client in the eyes of the broker: a client id, its link, what it sends and receives.

A fabric is one session. A subscription with a name is another, so that it may last when the fabric
does not.
"""

from __future__ import annotations

import ssl

from penstock.client.mqtt.endpoint import Endpoint
from penstock.client.mqtt.link import Link
from penstock.client.mqtt.outlet import Outlet
from penstock.client.mqtt.subscriptions import Subscriptions


class Session:
    """The order of its parts is the order they resume in: first receive, then send."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, patience: float) -> None:
        self.link = Link(endpoint, tls, patience)
        self.subscriptions = Subscriptions(self.link)
        self.outlet = Outlet(self.link)

    async def open(self) -> None:
        await self.link.open()

    async def close(self) -> None:
        await self.link.close()
