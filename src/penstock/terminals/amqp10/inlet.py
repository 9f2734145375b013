"""A link on which a client sends: deliveries become messages, and outcomes go back.

An inlet has a conversation with each exchange its messages lead to: one, if the link has a target;
as many as there are, if each message says for itself where it goes (the anonymous relay). Receipts
of the contract are the numbers of deliveries, one higher, so that none is zero. A message that
nobody wants is released, one that is refused rejected. The client's credit covers what has not
been settled: whoever waits for the disk gets no further ahead of it than that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import MANDATORY, Channel, Message
from penstock.core.errors import AccessRefused, PenstockError, PreconditionFailed
from penstock.core.properties import encode_route
from penstock.terminals.amqp10 import conversion
from penstock.terminals.amqp10.addresses import Place, parse_address
from penstock.terminals.amqp10.arrival import Arrival
from penstock.terminals.amqp10.errors import error_of, link_fault
from penstock.wire.amqp10.conditions import NOT_FOUND, LinkFault
from penstock.wire.amqp10.states import ACCEPTED, Rejected

if TYPE_CHECKING:
    from penstock.broker.destinations import Exchange
    from penstock.terminals.amqp10.recovery import KeptTarget
    from penstock.terminals.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import Incoming, Receiver

#: Deliveries a client may have on their way to us, and unsettled.
CREDIT: Final = 1024

#: Routes an inlet remembers the conversation of, and addresses the place of.
ROUTES: Final = 1024


class Producer(Channel):
    """The conversation of a link with an exchange."""

    __slots__ = ("exchange", "inlet", "post", "topical")

    def __init__(self, inlet: Inlet, driver: Exchange, exchange: str) -> None:
        super().__init__(inlet.terminal.outflow, driver)
        self.inlet = inlet
        self.exchange = exchange
        self.topical = driver.topical  #: topic permissions apply to routing keys
        self.check_topic = partial(inlet.terminal.access.check_topic, "write", exchange)
        self.post: Callable[[Channel, Any, int], None] = driver.channel_post


class Inlet:
    __slots__ = (
        "_arrival",
        "_by_exchange",
        "_places",
        "_producers",
        "_route",
        "kept",
        "known",
        "link",
        "place",
        "terminal",
        "unsettled",
    )

    def __init__(self, terminal: Amqp10Terminal, link: Receiver, place: Place | None) -> None:
        self.terminal = terminal
        self.link = link
        self.place = place  #: where all goes; None when each message says where
        self.unsettled = 0  #: deliveries whose outcome is not told yet
        self.known: set[bytes] = set()  #: tags of what was taken in before an interruption
        self.kept: KeptTarget | None = None  #: where to tell what is safe, once its client is away
        self._route: bytes | None = None  #: of every message, if it is always the same
        self._by_exchange: dict[str, Producer] = {}
        self._producers: dict[bytes, Producer] = {}
        self._places: dict[str, Place] = {}
        self._arrival: Arrival | None = None
        if place is not None:
            self._route = self._route_to(place)
            if self._route is not None:
                self.producer(self._route)
            else:
                self._conversation(place.name)

    # Where to.

    @staticmethod
    def _route_to(place: Place) -> bytes | None:
        """The route of what goes to a place; None when a message's subject has a say in it."""
        if place.kind != "exchange":
            return encode_route("", place.name)
        return None if place.key is None else encode_route(place.name, place.key)

    def producer(self, route: bytes) -> Producer:
        """The conversation a route belongs to, begun if need be."""
        exchange = route[1 : 1 + route[0]].decode("utf-8", "surrogateescape")
        producer = self._conversation(exchange)
        if producer.topical:
            key = route[route[0] + 2 :].decode("utf-8", "surrogateescape")
            self.terminal.access.check_topic("write", exchange, key)
        if len(self._producers) >= ROUTES:
            self._producers.clear()
        self._producers[route] = producer
        return producer

    def _conversation(self, exchange: str) -> Producer:
        terminal = self.terminal
        terminal.access.check("write", "exchange", exchange)
        producer = self._by_exchange.get(exchange)
        if producer is None:
            driver = terminal.vhost.exchange(exchange)
            if driver.internal:
                raise AccessRefused(
                    f"cannot publish to internal exchange '{exchange}' in vhost "
                    f"'{terminal.vhost.name}'"
                )
            producer = Producer(self, driver, exchange)
            driver.channel_open(producer, {})
            self._by_exchange[exchange] = producer
        return producer

    def forget_routes(self) -> None:
        """What was allowed has to be asked for again."""
        self._producers.clear()

    def _addressed(self, destination: str | None) -> Place:
        """Where a message wants to go that says so itself."""
        if destination is None:
            raise LinkFault(NOT_FOUND, "a message to an anonymous target says where it goes (to)")
        place = self._places.get(destination)
        if place is None:
            place = parse_address(destination)
            if place.kind == "exchange":
                self.terminal.vhost.exchange(place.name)
            if len(self._places) >= ROUTES:
                self._places.clear()
            self._places[destination] = place
        return place

    def route_of(self, found: conversion.Incoming) -> bytes:
        """The route of a message; raises when it leads nowhere."""
        user = self.terminal.access.user
        if found.user_id is not None and found.user_id != user.name.encode():
            self._check_impersonation(found.user_id)
        if self._route is not None:
            return self._route
        place = self.place
        if place is None:
            place = self._addressed(found.to)
            route = self._route_to(place)
            if route is not None:
                return route
        return encode_route(place.name, found.subject or "")

    def _check_impersonation(self, claimed: bytes) -> None:
        user = self.terminal.access.user
        if "impersonator" not in user.tags:
            told = claimed.decode("utf-8", "replace")
            raise PreconditionFailed(f"user-id is '{told}' but the user is '{user.name}'")

    # In.

    def take(self, delivery: Incoming, payload: bytes, more: bool) -> None:
        """A delivery, or a piece of one."""
        if delivery.resumed and delivery.tag in self.known:
            if not more:
                self.known.discard(delivery.tag)
                delivery.settle(ACCEPTED)
                self.top_up()
            return
        if not more and self._arrival is None and len(payload) <= self.terminal.spool_threshold:
            self.publish(delivery, payload)
        else:
            if self._arrival is None:
                self._arrival = Arrival(self, delivery)
            self._arrival.add(payload, more)
            if not more:
                self._arrival = None
        self.top_up()

    def publish(self, delivery: Incoming, payload: bytes) -> None:
        """A delivery that is whole, and small."""
        receipt = 0
        if not delivery.settled:
            receipt = delivery.id + 1
            self.unsettled += 1
        try:
            found = conversion.incoming(payload, time())
            self.post(Message(self.route_of(found), found.header, found.body, found.flags), receipt)
        except PenstockError as error:
            self.refuse(receipt, error)
            return
        self.terminal.published += 1

    def post(self, message: Message, receipt: int) -> Producer:
        """Hand on a message, or the opening of a large one."""
        producer = self._producers.get(message.route)
        if producer is None:
            producer = self.producer(message.route)
        if receipt:
            message.flags |= MANDATORY
        producer.post(producer, message, receipt)
        return producer

    def refuse(self, receipt: int, error: PenstockError) -> None:
        """A message that will not do. Without somebody to tell, the link itself ends."""
        if self.place is not None and not isinstance(error, PreconditionFailed):
            raise link_fault(error)
        if receipt:
            self.settle(receipt, Rejected(error_of(error)))
        else:
            self.terminal.host.kernel.metrics.unroutable += 1

    def hand_over(self) -> None:
        if self._arrival is not None:
            self._arrival.hand_over()

    def abandon(self) -> None:
        """The rest of a delivery will not come."""
        if self._arrival is not None:
            arrival, self._arrival = self._arrival, None
            arrival.abandon()
        self.top_up()

    def end_conversation(self, producer: Producer) -> None:
        """Half a message was posted: the next begins a new one, so that it is forgotten."""
        producer.driver.channel_close(producer)
        self._by_exchange.pop(producer.exchange, None)
        self._producers.clear()

    # Outcomes.

    def settle(self, receipt: int, outcome: Any) -> None:
        """Tell what became of a delivery, alone."""
        delivery = self.link.session.incoming.get(receipt - 1)
        if delivery is not None and delivery.link is self.link:
            delivery.settle(outcome)
            if delivery.settled:
                self.settled()

    def settled(self) -> None:
        """Nobody waits for anything more about a delivery."""
        self.unsettled -= 1
        self.top_up()

    def top_up(self) -> None:
        """Give the client credit again, when it has used up half of what it may have."""
        link = self.link
        if link.credit + self.unsettled <= CREDIT // 2 and link.live:
            link.grant(CREDIT - self.unsettled)

    # The end.

    def forget_producer(self, producer: Producer) -> bool:
        """Its exchange is gone; true when that is the end of the link."""
        self._by_exchange.pop(producer.exchange, None)
        self._producers.clear()
        self._places.clear()
        return self.place is not None

    def end(self) -> None:
        if self._arrival is not None:
            self._arrival.abandon()
            self._arrival = None
        for producer in self._by_exchange.values():
            producer.driver.channel_close(producer)
        self._by_exchange.clear()
        self._producers.clear()
