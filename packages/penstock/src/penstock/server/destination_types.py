"""The types of exchanges and queues. A new type is a class in `destinations/` and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.vhost import ExchangeFactory, QueueFactory
from penstock.core.errors import PreconditionFailed
from penstock.destinations.delayed import DelayedMessages, DelayedRouter
from penstock.destinations.exchange import ExchangeDriver, ExchangeRouter
from penstock.destinations.exchange_types import (
    DefaultExchangeRouter,
    DirectRouter,
    FanoutRouter,
    FederationUpstreamRouter,
    HeadersRouter,
    TopicRouter,
)
from penstock.destinations.queue import ClassicQueue
from penstock.destinations.selective_routers import (
    ConsistentHashRouter,
    ModulusHashRouter,
    RandomRouter,
    RecentHistoryRouter,
)
from penstock.destinations.session import MqttSessionQueue
from penstock.destinations.stream import Stream

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost

EXCHANGE_ROUTERS: Final[dict[str, Callable[[], ExchangeRouter]]] = {
    "direct": DirectRouter,
    "fanout": FanoutRouter,
    "topic": TopicRouter,
    "headers": HeadersRouter,
}


def _plain(router: Callable[[], ExchangeRouter]) -> ExchangeFactory:
    def make(vhost: VirtualHost, name: str, **settings: Any) -> ExchangeDriver:
        return ExchangeDriver(
            vhost, name, DefaultExchangeRouter(vhost) if name == "" else router(), **settings
        )

    return make


def _configured(router: Callable[[dict[str, Any]], ExchangeRouter]) -> ExchangeFactory:
    """For a router that reads arguments of the exchange."""

    def make(vhost: VirtualHost, name: str, **settings: Any) -> ExchangeDriver:
        return ExchangeDriver(vhost, name, router(settings["arguments"]), **settings)

    return make


def _delayed(vhost: VirtualHost, name: str, **settings: Any) -> ExchangeDriver:
    rule = settings["arguments"].get("x-delayed-type")
    if rule not in EXCHANGE_ROUTERS:
        raise PreconditionFailed(
            "Invalid argument, 'x-delayed-type' must be an existing exchange type: "
            f"one of {', '.join(EXCHANGE_ROUTERS)}"
        )
    delayed = DelayedMessages(vhost, name, settings["durable"])
    return ExchangeDriver(
        vhost, name, DelayedRouter(delayed, EXCHANGE_ROUTERS[rule]()), storage=delayed, **settings
    )


def _content(vhost: VirtualHost, name: str, **settings: Any) -> ExchangeDriver:
    try:  # loads NumPy
        from penstock.destinations.content_exchange import ContentExchangeRouter
    except ModuleNotFoundError as missing:
        raise PreconditionFailed(
            f"exchange type 'x-content' needs {missing.name}: pip install {missing.name}"
        ) from None
    return ExchangeDriver(vhost, name, ContentExchangeRouter(), **settings)


EXCHANGE_TYPES: Final[dict[str, ExchangeFactory]] = {
    **{name: _plain(router) for name, router in EXCHANGE_ROUTERS.items()},
    "x-consistent-hash": _configured(ConsistentHashRouter),
    "x-content": _content,
    "x-delayed-message": _delayed,
    "x-federation-upstream": _configured(FederationUpstreamRouter),
    "x-local-random": _plain(RandomRouter),
    "x-modulus-hash": _plain(ModulusHashRouter),
    "x-random": _plain(RandomRouter),
    "x-recent-history": _configured(RecentHistoryRouter),
}

QUEUE_TYPES: Final[dict[str, QueueFactory]] = {
    "classic": ClassicQueue,
    "stream": Stream,
    "mqtt": MqttSessionQueue,
}
