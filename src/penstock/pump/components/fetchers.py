"""subscribe and sarra: fetch what is announced; sarra announces its own copy."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.pump.components.consuming import consume
from penstock.pump.components.control import Control
from penstock.pump.components.readings import (
    base_dir,
    base_url,
    manners,
    needs_post_broker,
    selection,
    variables,
)
from penstock.pump.components.workshop import open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.plugins import Plugin
from penstock.pump.receiving import Receiving, Republishing, Wanted


async def subscribe(
    settings: PumpSettings, control: Control | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Fetch what is announced and accepted, until told to stop; with a post broker, tell it."""
    control = control or Control()
    async with open_workshop(settings, plugins) as shop:
        republishing = holding = None
        if needs_post_broker(settings):
            announcing = await shop.announcing()
            republishing = Republishing(announcing, base_url(settings), base_dir(settings))
            holding = await shop.holding(republishing.base_url, republishing.base_dir)
        wanted = Wanted(
            selection(settings),
            settings.events,
            settings.join,
            variables(settings),
            manners(settings).folder_mode,
        )
        work = Receiving(
            wanted,
            shop.fetching(control.transfers, holding),
            republishing=republishing,
            provenance=shop.provenance(),
            suppression=await shop.suppression(),
            plugins=shop.plugins,
        )
        await consume(shop, work, control, abandon=work.abandon)


async def sarra(
    settings: PumpSettings, control: Control | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """The same, mirrored, and announced with our own base URL."""
    await subscribe(settings, control, plugins)
