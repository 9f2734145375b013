"""Where answers go: the addresses that questions ask them to be sent to.

A broker that relays takes them all over one link and reads the address of each. To another, there
is a link for each asker; those that were used longest ago are taken off again, once nothing is
under way on them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from penstock.client.amqp10.outlet import Outlet
from penstock.client.amqp10.trunk import Trunk
from penstock.core.errors import NotFound

#: Askers that have a link of their own at a time, unless more are answered at once.
LINKS: Final = 32


@dataclass(slots=True)
class _Asker:
    outlet: Outlet
    under_way: int = 0  #: answers that are not settled yet


class Replies:
    def __init__(self, trunk: Trunk) -> None:
        self._trunk = trunk
        self._relay = _Asker(Outlet(trunk, None))
        self._askers: dict[str, _Asker] = {}

    async def send(self, address: str, payload: bytes) -> None:
        """To one who has gone it goes nowhere: that is no fault of whoever answers."""
        await self._trunk.open()
        asker = self._relay if self._trunk.relays else self._asker(address)
        asker.under_way += 1
        try:
            with contextlib.suppress(NotFound):
                await (await asker.outlet.post(payload))
        finally:
            asker.under_way -= 1
            await self._take_off()

    async def close(self) -> None:
        for asker in (self._relay, *self._askers.values()):
            await asker.outlet.close()

    def _asker(self, address: str) -> _Asker:
        asker = self._askers.pop(address, None) or _Asker(Outlet(self._trunk, address))
        self._askers[address] = asker  # the latest is the last
        return asker

    async def _take_off(self) -> None:
        over = len(self._askers) - LINKS
        if over > 0:
            idle = [name for name, asker in self._askers.items() if not asker.under_way]
            for asker in [self._askers.pop(name) for name in idle[:over]]:
                await asker.outlet.close()
