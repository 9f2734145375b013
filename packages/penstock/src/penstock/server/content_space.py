"""The content space of a virtual host: an x-content exchange and the overlay router, connected.

To the router the exchange is a hop whose subscriptions are the exchange's bindings, so publications
of AMQP and MQTT clients reach PADRES subscribers and the reverse. Advertisements for what the
exchange publishes are inferred from its publications, so that other brokers route subscriptions to
it. To PADRES clients the content space is their router. Their publications also go to bindings for
everything (`x-all`), such as the stream of publications, whether or not anyone subscribed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from penstock.broker.content_header import message_priority
from penstock.broker.content_router import ContentRouter, Hop, RouterReceipt
from penstock.broker.contract import ACCEPTED, PRIORITY, Binding, Message
from penstock.content.advertisement_inference import AdvertisementInference
from penstock.content.formatter import format_message, is_name
from penstock.content.messages import Publication, Subscription
from penstock.content.parser import PublicationCache
from penstock.core.basic_properties import decode_header
from penstock.core.errors import PenstockError, ResourceExhausted
from penstock.core.logs import get_logger
from penstock.destinations.content_exchange import ContentExchangeRouter, push_to_destination
from penstock.destinations.exchange import ExchangeDriver
from penstock.destinations.publications import CONTENT_TYPE, encode_publication
from penstock.overlay.messages import RESERVED_CLASSES
from penstock.wire.padres.envelope import DEFAULT_PRIORITY, EnvelopeKind, PadresEnvelope

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost

#: The highest usual priority of a queue; in the content language 0 is the most urgent.
HIGHEST_PRIORITY: Final = 9
#: The largest payload of an AMQP or MQTT client for PADRES clients, unless their own frames may be
#: larger. It is kept in memory.
MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024

_log = get_logger("penstock.content")


class ExchangeHop:
    """The exchange as the router sees it, and the router as the exchange does."""

    durable = False  #: the virtual host stores its bindings
    checked = False

    def __init__(
        self,
        exchange: ExchangeDriver,
        router: ContentRouter[PadresEnvelope],
        read: PublicationCache,
    ) -> None:
        self.name = f"{router.broker_id}-exchange-{exchange.name}"
        self._exchange = exchange
        assert isinstance(exchange.router, ContentExchangeRouter)
        self._content = exchange.router
        self._router = router
        self._read = read
        settings = exchange.vhost.kernel.settings.padres
        self._max_payload = max(MAX_PAYLOAD_BYTES, settings.max_frame_bytes)
        self._here = f"{router.broker_id}-"
        self._wanted: dict[Binding, list[str]] = {}
        self._asked: Counter[str] = Counter()  # by destination
        self.max_subscriptions = 0  #: of one destination; 0 for no limit
        self._announcing = AdvertisementInference(self._announce, self._withdraw)
        self._passing: Message | None = None  # from the router, not to be returned to it

    def deliver(self, envelope: PadresEnvelope) -> int:
        if envelope.source == self.name:
            return ACCEPTED  # the exchange has routed it
        avoid: frozenset[str] = frozenset()
        if envelope.source.startswith(self._here):  # `keep` has delivered to these
            avoid = frozenset(one.name for one in self._content.everything)
        message = self._message(envelope, envelope.id)
        self._passing = message
        try:
            return self._exchange.accept(message, avoid)
        finally:
            self._passing = None

    def keep(self, envelope: PadresEnvelope, id_: str) -> int:
        """Deliver a client's publication to bindings for everything."""
        outcome = ACCEPTED
        everything = self._content.everything
        if everything:
            message = self._message(envelope, id_)
            for one in everything:
                outcome |= push_to_destination(one, message)
        return outcome

    def _message(self, envelope: PadresEnvelope, id_: str) -> Message:
        return envelope_to_message(envelope, self._read(envelope.text), self._exchange.name, id_)

    def push(self, message: Message) -> int:
        publication = None if message is self._passing else self._content.publication(message)
        if publication is None or publication.class_name in RESERVED_CLASSES:
            return ACCEPTED  # classes that control brokers
        publication = valid_attributes(publication)
        try:
            self._announcing.on_publication(publication)
            envelope = message_to_envelope(message, publication, self._max_payload)
            self._read.remember(envelope.text, publication)
            return self._router.receive(self, envelope).outcome
        except PenstockError as error:  # the message is still routed by the exchange
            _log.debug("publication not shared", exchange=self._exchange.name, error=str(error))
            return ACCEPTED

    def bound(self, binding: Binding, wanted: list[Subscription]) -> None:
        destination = binding.destination.name
        limit = self.max_subscriptions
        if limit and self._asked[destination] + len(wanted) > limit:
            raise ResourceExhausted(
                f"'{destination}' has {self._asked[destination]} of {self.max_subscriptions} "
                "subscriptions by content: unbind some"
            )
        ids = self._wanted.setdefault(binding, [])
        try:
            for one in wanted:
                options = (("several", "true"),)
                envelope = PadresEnvelope(
                    EnvelopeKind.SUBSCRIBE, format_message(one), options=options
                )
                ids.append(self._router.receive(self, envelope).id)
                self._asked[destination] += 1
        except PenstockError:
            self.unbound(binding)
            raise

    def unbound(self, binding: Binding) -> None:
        ids = self._wanted.pop(binding, ())
        for id_ in ids:
            self._router.receive(self, PadresEnvelope(EnvelopeKind.UNSUBSCRIBE, id_))
        self._asked -= Counter({binding.destination.name: len(ids)})

    def _announce(self, text: str) -> str:
        return self._router.receive(self, PadresEnvelope(EnvelopeKind.ADVERTISE, text)).id

    def _withdraw(self, id_: str) -> None:
        self._router.receive(self, PadresEnvelope(EnvelopeKind.UNADVERTISE, id_))


class ContentSpace:
    """A router that also delivers to the content exchange."""

    def __init__(
        self, vhost: VirtualHost, router: ContentRouter[PadresEnvelope], read: PublicationCache
    ) -> None:
        """`read` parses publications, with the router's cache."""
        self._vhost = vhost
        self._router = router
        self._read = read
        self._settings = vhost.kernel.settings.padres
        self._hop: ExchangeHop | None = None
        self.join()

    @property
    def broker_id(self) -> str:
        return self._router.broker_id

    def join(self) -> None:
        """Declare the exchange and the stream, and connect the exchange to the router."""
        vhost, settings = self._vhost, self._settings
        name = settings.exchange
        exchange = vhost.exchanges.get(name)
        if exchange is None:
            exchange = vhost.declare_exchange(name, "x-content", durable=True)
        if not isinstance(exchange, ExchangeDriver) or not isinstance(
            exchange.router, ContentExchangeRouter
        ):
            _log.warning("exchange type mismatch", exchange=name)
            return
        if exchange.router.gateway is None:
            if self._hop is not None:
                self._router.detach(self._hop.name)
            self._hop = ExchangeHop(exchange, self._router, self._read)
            self._router.attach(self._hop)
            exchange.router.open(self._hop, list(exchange.bindings))
            if settings.conformance:  # existing bindings are not refused
                self._hop.max_subscriptions = vhost.kernel.settings.overlay.max_asked
        if settings.stream and settings.stream not in vhost.queues:
            arguments: dict[str, str | int] = {"x-queue-type": "stream"}
            if settings.stream_bytes:
                arguments["x-max-length-bytes"] = settings.stream_bytes
            stream = vhost.declare_queue(settings.stream, durable=True, arguments=arguments)
            vhost.bind(name, stream, "", {"x-all": True})

    def attach(self, hop: Hop[PadresEnvelope], notify_subscriptions: bool = False) -> None:
        self.join()
        self._router.attach(hop, notify_subscriptions)

    def detach(self, name: str) -> None:
        self._router.detach(name)

    def receive(self, hop: Hop[PadresEnvelope], envelope: PadresEnvelope) -> RouterReceipt:
        receipt = self._router.receive(hop, envelope)
        if envelope.kind is EnvelopeKind.PUBLISH and self._hop is not None:
            outcome = self._hop.keep(envelope, receipt.id)
            return RouterReceipt(receipt.id, receipt.outcome | outcome)
        return receipt


def envelope_to_message(
    envelope: PadresEnvelope, publication: Publication, exchange: str, id_: str
) -> Message:
    time = envelope.time or (publication.time.timestamp() if publication.time else 0.0)
    return encode_publication(
        publication,
        exchange,
        envelope.payload,
        message_id=id_,
        time=time,
        urgency=max(0, min(HIGHEST_PRIORITY, HIGHEST_PRIORITY - envelope.priority)),
        durable=envelope.durable,
    )


def valid_attributes(publication: Publication) -> Publication:
    """Without headers whose names are not valid in the content language."""
    attributes = {name: one for name, one in publication.attributes.items() if is_name(name)}
    return Publication(publication.class_name, attributes, publication.time)


def message_to_envelope(
    message: Message, publication: Publication, max_payload: int
) -> PadresEnvelope:
    properties = decode_header(message.header)
    urgency = (
        message_priority(message.header)
        if message.flags & PRIORITY
        else HIGHEST_PRIORITY - DEFAULT_PRIORITY
    )
    is_text = properties.content_type == CONTENT_TYPE
    return PadresEnvelope(
        EnvelopeKind.PUBLISH,
        format_message(publication),
        payload=b"" if is_text else _payload(message, max_payload),
        priority=max(0, HIGHEST_PRIORITY - urgency),
        time=float(properties.timestamp or 0),
        durable=properties.delivery_mode == 2,
    )


def _payload(message: Message, limit: int) -> bytes:
    if message.spool is None:
        return message.body
    if message.size > limit:
        _log.warning("payload too large", bytes=message.size, limit=limit)
        return b""
    return message.spool.read()
