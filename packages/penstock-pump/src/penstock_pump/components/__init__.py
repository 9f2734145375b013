"""The components, each a coroutine: `await subscribe(settings)`, and so on.

They run until `ComponentControl.stop` is set, or until there is nothing left to do.
"""

from penstock_pump.components.consumers import report, sarra, sender, shovel, subscribe, winnow
from penstock_pump.components.flow import flow
from penstock_pump.components.message_archive import restore, save
from penstock_pump.components.poll import poll
from penstock_pump.components.posters import post, watch
from penstock_pump.status import ComponentControl

__all__ = [
    "ComponentControl",
    "flow",
    "poll",
    "post",
    "report",
    "restore",
    "sarra",
    "save",
    "sender",
    "shovel",
    "subscribe",
    "watch",
    "winnow",
]
