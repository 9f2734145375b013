"""Which kinds of destinations exist. A new kind is a file in `drivers/` and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.vhost import ExchangeType, QueueType
from penstock.core.errors import PreconditionFailed
from penstock.drivers.exchange import Exchange, Router
from penstock.drivers.queue import Queue
from penstock.drivers.routers.delayed import Delayed, DelayLine
from penstock.drivers.routers.direct import Default, Direct
from penstock.drivers.routers.fanout import Fanout
from penstock.drivers.routers.headers import Headers
from penstock.drivers.routers.topic import Topic
from penstock.drivers.session import Session
from penstock.drivers.stream import Stream

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost

ROUTERS: Final[dict[str, Callable[[], Router]]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
}


def _plain(router: Callable[[], Router]) -> ExchangeType:
    def make(vhost: VirtualHost, name: str, **settings: Any) -> Exchange:
        return Exchange(vhost, name, Default(vhost) if name == "" else router(), **settings)

    return make


def _delayed(vhost: VirtualHost, name: str, **settings: Any) -> Exchange:
    rule = settings["arguments"].get("x-delayed-type")
    if rule not in ROUTERS:
        raise PreconditionFailed(
            "Invalid argument, 'x-delayed-type' must be an existing exchange type: "
            f"one of {', '.join(ROUTERS)}"
        )
    line = DelayLine(vhost, name, settings["durable"])
    return Exchange(vhost, name, Delayed(line, ROUTERS[rule]()), keeper=line, **settings)


def _content(vhost: VirtualHost, name: str, **settings: Any) -> Exchange:
    try:  # NumPy is loaded for the first exchange that needs it
        from penstock.drivers.routers.content import Content
    except ModuleNotFoundError as missing:
        raise PreconditionFailed(
            f"exchange type 'x-content' needs {missing.name}: pip install 'penstock[content]'"
        ) from None
    return Exchange(vhost, name, Content(), **settings)


EXCHANGE_TYPES: Final[dict[str, ExchangeType]] = {
    **{name: _plain(router) for name, router in ROUTERS.items()},
    "x-content": _content,
    "x-delayed-message": _delayed,
}

QUEUE_TYPES: Final[dict[str, QueueType]] = {"classic": Queue, "stream": Stream, "mqtt": Session}
