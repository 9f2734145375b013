"""Where answers go: the addresses that questions ask them to be sent to.

A broker that relays takes them all over one link and reads the address of each. To another, there
is a link for each asker; those that were used longest ago are taken off again.
"""

from __future__ import annotations

import contextlib
from typing import Final

from penstock.client.amqp10.outlet import Outlet
from penstock.client.amqp10.trunk import Trunk
from penstock.core.errors import NotFound

#: Askers that have a link of their own at a time.
LINKS: Final = 32


class Replies:
    def __init__(self, trunk: Trunk) -> None:
        self._trunk = trunk
        self._relay = Outlet(trunk, None)
        self._outlets: dict[str, Outlet] = {}

    async def send(self, address: str, payload: bytes) -> None:
        """To one who has gone it goes nowhere: that is no fault of whoever answers."""
        await self._trunk.open()
        outlet = self._relay if self._trunk.relays else await self._outlet(address)
        with contextlib.suppress(NotFound):
            await (await outlet.post(payload))

    async def close(self) -> None:
        for outlet in (self._relay, *self._outlets.values()):
            await outlet.close()

    async def _outlet(self, address: str) -> Outlet:
        outlet = self._outlets.pop(address, None) or Outlet(self._trunk, address)
        self._outlets[address] = outlet  # the latest is the last
        if len(self._outlets) > LINKS:
            oldest = next(iter(self._outlets))
            await self._outlets.pop(oldest).close()
        return outlet
