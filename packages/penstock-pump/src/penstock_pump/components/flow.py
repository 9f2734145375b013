"""`flow`: the component of sr3 whose work is told by its options and callbacks.

`flowMain` names the component it works as. Otherwise `gather.file` makes it a watch, `pollUrl` or a
plugin that finds posts by itself a poll, `sendTo` a sender, `download on` a subscriber, and
anything else forwards posts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock_pump.components.consumers import sender, shovel, subscribe, winnow
from penstock_pump.components.poll import poll
from penstock_pump.components.posters import watch
from penstock_pump.components.vip import PumpComponent
from penstock_pump.config.settings import PumpSettings
from penstock_pump.plugins import Plugin, gathers_posts
from penstock_pump.status import ComponentControl

_COMPONENTS: Final[dict[str, PumpComponent]] = {
    "watch": watch,
    "post": watch,
    "subscribe": subscribe,
    "sarra": subscribe,
    "winnow": winnow,
    "shovel": shovel,
    "sender": sender,
    "poll": poll,
}


async def flow(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    main = main_of(settings)
    if main not in _COMPONENTS:
        raise ConfigurationError(f"flowMain {main!r} should be one of {', '.join(_COMPONENTS)}")
    if main in ("subscribe", "sarra") and settings.flow_main is not None:
        settings = settings.model_copy(update={"download": True})
    await _COMPONENTS[main](settings, control, plugins)


def main_of(settings: PumpSettings) -> str:
    """The component that a flow works as."""
    if settings.flow_main is not None:
        return settings.flow_main.rpartition(".")[2].lower()
    if "callback gather.file" in settings.plugins:
        return "watch"
    if settings.poll_url is not None or gathers_posts(settings):
        return "poll"
    if settings.destination is not None:
        return "sender"
    if settings.download:
        return "subscribe"
    return "shovel" if settings.post_broker is not None else "subscribe"
