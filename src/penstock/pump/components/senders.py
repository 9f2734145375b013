"""sender: files that are here, pushed to a server."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.errors import ConfigurationError
from penstock.pump.components.consuming import consume
from penstock.pump.components.control import Control
from penstock.pump.components.readings import base_url, file_rule, selection, variables
from penstock.pump.components.workshop import open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.plugins import Plugin
from penstock.pump.receiving import Wanted
from penstock.pump.sending import Destination, Sending
from penstock.pump.transports.hosts import HostRule


async def sender(
    settings: PumpSettings, control: Control | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Push what is announced and accepted; with a post broker, announce it where it is then."""
    if settings.destination is None:
        raise ConfigurationError("sender needs a destination: the URL to push to")
    async with open_workshop(settings, plugins) as shop:
        telling = settings.post_broker is not None
        destination = Destination(
            settings.destination,
            settings.base_dir,
            file_rule(settings),
            settings.inflight if settings.inflight[1:] and "/" not in settings.inflight else ".tmp",
            settings.to_clusters,
            settings.preserve_mode,
            settings.preserve_time,
        )
        work = Sending(
            destination,
            Wanted(selection(settings), settings.events, settings.join, variables(settings)),
            shop.transports(HostRule(private=True)),  # the destination is the site's own word
            announcing=await shop.announcing() if telling else None,
            base_url=base_url(settings) if telling else None,
            plugins=shop.plugins,
        )
        await consume(shop, work, control or Control())
