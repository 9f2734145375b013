"""The components, each a call: `await subscribe(settings)`, and so on.

They run until `Control.stop` is set, or until there is nothing left to do.
"""

from penstock.pump.components.control import Control
from penstock.pump.components.fetchers import sarra, subscribe
from penstock.pump.components.passers import shovel, winnow
from penstock.pump.components.posters import post, watch
from penstock.pump.components.reports import report
from penstock.pump.components.savers import restore, save
from penstock.pump.components.senders import sender

__all__ = [
    "Control",
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
