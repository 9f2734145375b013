"""Protocol by verb by permission: what each needs is sufficient, and each part of it necessary.

The verbs come from the protocols' own tables. A verb without a line here fails.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from penstock.broker.permissions import Permission
from penstock.client.padres import PadresClient
from penstock.core.config import BrokerSettings
from penstock.core.errors import AccessRefused
from penstock.protocols.amqp091.handlers import HANDLERS
from penstock.protocols.amqp10.addresses import parse_link_address
from penstock.protocols.amqp10.management_node import respond
from penstock.server import Broker
from penstock.wire.amqp091.methods import METHODS
from penstock.wire.amqp10.connection import _SYMBOLIC_DESCRIPTORS
from penstock.wire.amqp10.message import Amqp10Message, Amqp10Properties
from penstock.wire.amqp10.performatives import PERFORMATIVES, Accepted, Rejected
from penstock.wire.mqtt import fields
from penstock.wire.padres.envelope import EnvelopeKind
from tests.integration.mqtt.clients_paho import Paho, Will
from tests.protocols.amqp10.peer import Peer
from tests.protocols.amqp10.test_management_node import node_of
from tests.protocols.amqp10.test_transactions import transactions_of

KINDS: Final = ("configure", "write", "read")
_numbers = count()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    listen = ["amqp://127.0.0.1:0", "mqtt://127.0.0.1:0", "padres://127.0.0.1:0"]
    async with Broker(BrokerSettings(listen=listen, drain_seconds=0.1), data=tmp_path) as broker:
        broker.users.add("ada", "ada")
        vhost = broker.vhosts["/"]
        vhost.declare_exchange("ours", "topic")
        vhost.declare_queue("ours")
        yield broker


def url(broker: Broker, scheme: str) -> str:
    [found] = [each for each in broker.addresses if each.startswith(f"{scheme}://")]
    return found.replace("://", "://ada:ada@")


def port(broker: Broker, scheme: str) -> int:
    return urlsplit(url(broker, scheme)).port or 0


def grant(broker: Broker, kinds: frozenset[str]) -> None:
    broker.users.set_permissions(
        "ada", "/", Permission(*(".*" if kind in kinds else "^$" for kind in KINDS))
    )


def attempts(needed: str) -> Iterator[tuple[frozenset[str], bool]]:
    """What is granted, and whether it suffices."""
    kinds = frozenset(needed.split())
    yield kinds, True
    for kind in kinds:
        yield frozenset(KINDS) - {kind}, False


# AMQP 0-9-1.

Deed = Callable[[BlockingChannel], object]


def _publish(channel: BlockingChannel) -> None:
    channel.basic_publish("ours", "key", b"")
    channel.basic_qos(prefetch_count=1)  # answered after it


def _new() -> str:
    return f"new-{next(_numbers)}"


#: Method → permissions, and how a client calls it. `dead letters` and `alternate` are arguments.
METHOD_TABLE: Final[dict[str, tuple[str, Deed]]] = {
    "exchange.declare": ("configure", lambda c: c.exchange_declare(_new())),
    "exchange.declare alternate": (
        "configure read write",
        lambda c: c.exchange_declare(_new(), arguments={"alternate-exchange": "ours"}),
    ),
    "exchange.delete": ("configure", lambda c: c.exchange_delete(_new())),
    "exchange.bind": ("write read", lambda c: c.exchange_bind("ours", "amq.topic", "k")),
    "exchange.unbind": ("write read", lambda c: c.exchange_unbind("ours", "amq.topic", "k")),
    "queue.declare": ("configure", lambda c: c.queue_declare(_new())),
    "queue.declare dead letters": (
        "configure read write",
        lambda c: c.queue_declare(_new(), arguments={"x-dead-letter-exchange": "ours"}),
    ),
    "queue.bind": ("write read", lambda c: c.queue_bind("ours", "ours", "k")),
    "queue.unbind": ("write read", lambda c: c.queue_unbind("ours", "ours", "k")),
    "queue.purge": ("read", lambda c: c.queue_purge("ours")),
    "queue.delete": ("configure", lambda c: c.queue_delete(_new())),
    "basic.publish": ("write", _publish),
    "basic.consume": ("read", lambda c: c.basic_consume("ours", lambda *_: None)),
    "basic.get": ("read", lambda c: c.basic_get("ours")),
}
#: Methods about the connection, the channel, or deliveries that the channel already has.
UNRESTRICTED: Final = {
    *("connection.close", "connection.update-secret"),
    *("channel.open", "channel.close", "channel.flow"),
    *("basic.ack", "basic.nack", "basic.reject", "basic.recover", "basic.recover-async"),
    *("basic.cancel", "basic.cancel-ok", "basic.qos", "confirm.select"),
    *("tx.select", "tx.commit", "tx.rollback"),
}


def test_every_method_of_amqp_0_9_1_has_a_line() -> None:
    handled = {
        METHODS[number].name
        for number, handler in HANDLERS.items()
        if "_unimplemented" not in handler.__qualname__
    }
    restricted = {name.partition(" ")[0] for name in METHOD_TABLE}
    # Its content follows, so it is not in the table of handlers.
    assert handled | {"basic.publish"} == restricted | UNRESTRICTED
    assert not restricted & UNRESTRICTED


async def test_amqp_0_9_1(broker: Broker) -> None:
    def attempt(deed: Deed) -> bool:
        with pika.BlockingConnection(pika.URLParameters(url(broker, "amqp"))) as connection:
            try:
                deed(connection.channel())
            except ChannelClosedByBroker as closed:
                if closed.reply_code != 403 or "access to" not in closed.reply_text:
                    raise
                return False
        return True

    wrong = []
    for name, (needed, deed) in METHOD_TABLE.items():
        for granted, suffices in attempts(needed):
            grant(broker, granted)
            if await asyncio.to_thread(attempt, deed) != suffices:
                wrong.append((name, sorted(granted)))
    assert wrong == []


# AMQP 1.0: attaching a link is what needs a permission.

Attaching = Callable[[Peer], Awaitable[Any]]


async def _coordinator(peer: Peer) -> Any:
    """Messages in a transaction are checked as others are (`test_transactions.py`)."""
    return (await transactions_of(peer)).link


LINK_TABLE: Final[dict[str, tuple[str, Attaching]]] = {
    "send to an exchange": ("write", lambda peer: peer.sender("/exchange/ours/key")),
    "send to an exchange with slashes": ("write", lambda peer: peer.sender("/exchange/ours/a/b")),
    "send by subject": ("write", lambda peer: peer.sender("/exchanges/ours")),
    "send to a topic": ("write", lambda peer: peer.sender("/topic/a")),
    "subscribe to a topic": ("configure read", lambda peer: peer.receiver("/topic/a")),
    "send to a queue": ("write", lambda peer: peer.sender("/queues/ours")),
    "send to a new queue": ("configure write", lambda peer: peer.sender(f"/queue/{_new()}")),
    "send to a new stream": ("configure write", lambda peer: peer.sender(f"/stream/{_new()}")),
    "send to a dynamic node": ("configure write", lambda peer: peer.sender(None, dynamic=True)),
    "receive from a queue": ("read", lambda peer: peer.receiver("/queues/ours")),
    "receive from a new queue": ("configure read", lambda peer: peer.receiver(f"/queue/{_new()}")),
    "receive from a dynamic node": ("configure", lambda peer: peer.receiver(None, dynamic=True)),
    "subscribe to an exchange": ("configure read", lambda peer: peer.receiver("/exchange/ours/k")),
    "receive direct replies": (
        "",
        lambda peer: peer.receiver(
            None,
            dynamic=True,
            expiry_policy="link-detach",
            capabilities=("rabbitmq:volatile-queue",),
            snd=1,
        ),
    ),
    "declare transactions": ("", _coordinator),
}


#: The forms of addresses, as they are taken apart → lines of the table.
ADDRESSES: Final = {
    "['queue', name]": {"send to a new queue", "receive from a new queue"},
    "['queues', name] | ['amq', 'queue', name]": {"send to a queue", "receive from a queue"},
    "['stream', name]": {"send to a new stream"},
    "['exchange' | 'exchanges', name]": {"send by subject"},
    "['exchange' | 'exchanges', name, key]": {"send to an exchange", "subscribe to an exchange"},
    "['exchange', name, *rest]": {"send to an exchange with slashes"},
    "['topic', *words]": {"send to a topic", "subscribe to a topic"},
}


def patterns(function: Callable[..., object]) -> set[str]:
    """What the cases of a function match."""
    tree = ast.parse(inspect.getsource(function))
    return {
        ast.unparse(node.pattern) for node in ast.walk(tree) if isinstance(node, ast.match_case)
    }


def test_every_verb_and_address_of_amqp_1_0_has_a_line() -> None:
    """What needs permissions are links, and each message of a link without a target."""
    unrestricted = {"open", "begin", "flow", "disposition", "detach", "end", "close"}
    known = [PERFORMATIVES.find(code) for code in range(256)]
    symbols = {each.symbol for each in known if each is not None} | set(_SYMBOLIC_DESCRIPTORS)
    assert {symbol.split(":")[1] for symbol in symbols} == {*unrestricted, "attach", "transfer"}
    assert patterns(parse_link_address) == set(ADDRESSES)
    assert {name for names in ADDRESSES.values() for name in names} <= set(LINK_TABLE)


async def test_amqp_1_0(broker: Broker) -> None:
    async def attempt(attach: Attaching) -> bool:
        peer = await Peer().connect(port(broker, "amqp"), user="ada", password="ada")
        try:
            link = await attach(peer)
            await peer.session()  # an answer after that to the link
        finally:
            await peer.hang_up()
        error = peer.detached.get(link)
        assert error is None or error.condition == "amqp:unauthorized-access"
        return link not in peer.detached

    wrong = []
    for name, (needed, attach) in LINK_TABLE.items():
        for granted, suffices in attempts(needed):
            grant(broker, granted)
            if await attempt(attach) != suffices:
                wrong.append((name, sorted(granted)))
    assert wrong == []


async def test_amqp_1_0_checks_each_message_of_the_anonymous_terminus(broker: Broker) -> None:
    for granted, outcome in ((frozenset({"write"}), Accepted), (frozenset({"read"}), Rejected)):
        grant(broker, granted)
        peer = await Peer().connect(port(broker, "amqp"), user="ada", password="ada")
        link = await peer.sender(None)
        message = Amqp10Message(properties=Amqp10Properties(to="/queues/ours"))
        assert isinstance(await peer.send(link, message), outcome)
        await peer.hang_up()


#: Requests to the management node, as they are taken apart → what each needs, and an example.
REQUESTS: Final[dict[str, tuple[str, str, Any]]] = {
    "['PUT', ['queues', name]]": ("configure", "PUT /queues/new", {}),
    "['GET', ['queues', name]]": ("", "GET /queues/ours", None),
    "['DELETE', ['queues', name]]": ("configure", "DELETE /queues/new", None),
    "['DELETE', ['queues', name, 'messages']]": ("read", "DELETE /queues/ours/messages", None),
    "['PUT', ['exchanges', name]]": ("configure", "PUT /exchanges/new", {}),
    "['DELETE', ['exchanges', name]]": ("configure", "DELETE /exchanges/new", None),
    "['POST', ['bindings']]": (
        "write read",
        "POST /bindings",
        {"source": "ours", "destination_queue": "ours", "binding_key": "k"},
    ),
    "['DELETE', ['bindings', binding]]": (
        "write read",
        "DELETE /bindings/src=ours;dstq=ours;key=k;args=",
        None,
    ),
    "['GET', ['bindings']]": ("write read", "GET /bindings?src=ours&dstq=ours", None),
}


def test_every_request_to_the_management_node_has_a_line() -> None:
    assert patterns(respond) == set(REQUESTS)


async def test_requests_to_the_management_node(broker: Broker) -> None:
    wrong = []
    for needed, request, body in REQUESTS.values():
        method, path = request.split()
        for granted, suffices in attempts(needed):
            grant(broker, granted)
            peer = await Peer().connect(port(broker, "amqp"), user="ada", password="ada")
            status, _ = await (await node_of(peer)).ask(method, path, body)
            await peer.hang_up()
            if (status != 403) != suffices:
                wrong.append((request, sorted(granted), status))
    assert wrong == []


# MQTT: publishing, wills and subscribing.


def test_every_packet_of_mqtt_has_a_line() -> None:
    """What a client sends: these need permissions, the others acknowledge, withdraw or end."""
    restricted = {"CONNECT", "PUBLISH", "SUBSCRIBE"}
    unrestricted = {"PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "UNSUBSCRIBE", "PINGREQ"}
    unrestricted |= {"DISCONNECT", "AUTH"}
    from_broker = {"CONNACK", "SUBACK", "UNSUBACK", "PINGRESP"}
    types = {name for name, value in vars(fields).items() if name.isupper() and _is_type(value)}
    assert types == restricted | unrestricted | from_broker


def _is_type(value: object) -> bool:
    return isinstance(value, int) and 1 <= value <= 15


async def test_mqtt(broker: Broker) -> None:
    number, login = port(broker, "mqtt"), ("ada", "ada")

    def publish(retain: bool) -> bool:
        with Paho(number, login=login) as client:
            return client.publish("a/b", b"", 1, retain=retain) < 0x80

    def subscribe(filter_: str) -> bool:
        with Paho(number, login=login) as client:
            return client.subscribe([filter_], 1)[0] < 0x80

    def will() -> bool:
        client = Paho(number, login=login, will=Will("a/b", b"gone", 1))
        reason = client.open().reason
        client.close()
        return reason < 0x80

    table: dict[str, tuple[str, Callable[[], bool]]] = {
        "publish": ("write", lambda: publish(False)),
        "publish retained": ("write", lambda: publish(True)),
        "subscribe": ("read", lambda: subscribe("a/#")),
        "subscribe shared": ("read", lambda: subscribe("$share/group/a/#")),
        "will": ("write", will),
    }
    wrong = []
    for name, (needed, attempt) in table.items():
        for granted, suffices in attempts(needed):
            grant(broker, granted)
            if await asyncio.to_thread(attempt) != suffices:
                wrong.append((name, sorted(granted)))
    assert wrong == []


# PADRES.

ENVELOPES: Final[dict[EnvelopeKind, tuple[str, Callable[[PadresClient], Awaitable[Any]]]]] = {
    EnvelopeKind.ADVERTISE: ("write", lambda client: client.advertise("[class,eq,k]")),
    EnvelopeKind.SUBSCRIBE: ("read", lambda client: client.subscribe("[class,eq,k]")),
    EnvelopeKind.COMPOSITE: (
        "read",
        lambda client: client.subscribe("{{[class,eq,k]}&{[class,eq,l]}}"),
    ),
    EnvelopeKind.PUBLISH: ("write", lambda client: client.publish("[class,k]")),
}
#: Withdrawing what a client has asked for needs nothing.
WITHDRAWALS: Final = {
    EnvelopeKind.UNADVERTISE,
    EnvelopeKind.UNSUBSCRIBE,
    EnvelopeKind.UNCOMPOSITE,
}


async def test_padres(broker: Broker) -> None:
    assert set(EnvelopeKind) == set(ENVELOPES) | WITHDRAWALS
    wrong = []
    for kind, (needed, deed) in ENVELOPES.items():
        for granted, suffices in attempts(needed):
            grant(broker, frozenset(KINDS))
            async with PadresClient(url(broker, "padres")) as client:
                if kind is EnvelopeKind.PUBLISH:
                    await client.advertise("[class,eq,k]")
                grant(broker, granted)
                with refusal() as refused:
                    await deed(client)
                if bool(refused) == suffices:
                    wrong.append((kind.name, sorted(granted)))
    assert wrong == []


@contextmanager
def refusal() -> Iterator[list[AccessRefused]]:
    found: list[AccessRefused] = []
    try:
        yield found
    except AccessRefused as error:
        found.append(error)
