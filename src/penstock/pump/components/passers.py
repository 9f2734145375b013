"""winnow and shovel: announcements carried on, without the files."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.errors import ConfigurationError
from penstock.pump.components.consuming import consume
from penstock.pump.components.control import Control
from penstock.pump.components.naming import heard_exchange, posted_exchange
from penstock.pump.components.readings import selection
from penstock.pump.components.workshop import open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.flow.hearing import over_mqtt
from penstock.pump.plugins import Plugin
from penstock.pump.winnowing.winnow import Passing


async def winnow(
    settings: PumpSettings, control: Control | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Of equal announcements only the first goes on."""
    await _pass(settings, control, plugins, winnowing=True)


async def shovel(
    settings: PumpSettings, control: Control | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Announcements from one broker or exchange to another."""
    await _pass(settings, control, plugins, winnowing=False)


async def _pass(
    settings: PumpSettings,
    control: Control | None,
    plugins: Sequence[Plugin],
    *,
    winnowing: bool,
) -> None:
    _refuse_loop(settings)
    if winnowing and settings.suppress_duplicates is None:
        raise ConfigurationError("winnow needs suppress_duplicates: for how long to remember")
    async with open_workshop(settings, plugins) as shop:
        work = Passing(
            await shop.announcing(),
            selection(settings),
            suppression=await shop.suppression() if winnowing else None,
            plugins=shop.plugins,
            spelled_anew=_spelled_anew(settings),
        )
        await consume(shop, work, control or Control())


def _spelled_anew(settings: PumpSettings) -> bool:
    """Topics of one protocol are none of the other's."""
    if settings.post_format is not None or settings.post_topic_prefix is not None:
        return True
    return over_mqtt(settings.broker) != over_mqtt(settings.post_broker or settings.broker)


def _refuse_loop(settings: PumpSettings) -> None:
    """What goes out must not come in again."""
    url = settings.post_broker or settings.broker
    if url == settings.broker and heard_exchange(settings) == posted_exchange(settings, url):
        raise ConfigurationError(
            f"{settings.component} would hear what it sends: give it another post_exchange"
        )
