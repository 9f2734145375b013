"""Four brokers that route together, with clients: `python -m tests.web.overlay_server DIR`.

Broker1 ── B2 ── B4
   └────── B3
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from penstock.cli.shutdown import stop_event
from penstock.client.padres import PadresClient
from penstock.core.config import BrokerSettings, OverlaySettings
from penstock.server import Broker
from tests.overlay.house import TRUST, allow_links

NEIGHBOURS = {"Broker1": (), "B2": ("Broker1",), "B3": ("Broker1",), "B4": ("B2",)}
NAMES = list(NEIGHBOURS)


async def main(folder: Path) -> None:
    addresses: dict[str, str] = {}
    async with AsyncExitStack() as stack, stop_event(True) as stop:
        for name, others in NEIGHBOURS.items():
            listen = ["padres://127.0.0.1:0"] + ["http://127.0.0.1:0"] * (not others)
            overlay = OverlaySettings(
                id=name,
                neighbours=[f"{addresses[other]}/{other}" for other in others],
                retry_pause=0.05,
                **{**TRUST, "accept_links_from": NAMES, "accept_commands_from": NAMES},
            )
            settings = BrokerSettings(listen=listen, overlay=overlay, drain_seconds=0.2)
            allow_links(folder / name)
            broker = await stack.enter_async_context(Broker(settings, data=folder / name))
            addresses[name] = broker.addresses[0]
            if not others:
                page = broker.addresses[1]
        seller = await stack.enter_async_context(PadresClient(addresses["B4"], id="seller"))
        await seller.advertise("[class,eq,stock],[price,>,0]")
        for number in range(3):
            buyer = PadresClient(addresses["B3"], id=f"buyer-{number}")
            await stack.enter_async_context(buyer)
            await buyer.subscribe("[class,eq,stock],[price,>,0]")
        telling = asyncio.create_task(_tell(seller))
        print(page, flush=True)
        await stop.wait()
        telling.cancel()


async def _tell(seller: PadresClient) -> None:
    """So that there is something on the links, for as long as it is looked at."""
    while True:
        for price in range(1, 21):
            await seller.publish(f"[class,stock],[price,{price}]")
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
