"""Where links of AMQP 1.0 lead: exchanges, topics, streams, nodes made for the asking."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.broker.permissions import Permission, TopicPermission
from penstock.server.broker import Broker
from penstock.wire.amqp10.errors import (
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    UNAUTHORIZED,
)
from penstock.wire.amqp10.links import LinkEndpoint
from penstock.wire.amqp10.message import Amqp10Header, Amqp10Message, Amqp10Properties
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    COPY,
    LIFETIME_POLICIES,
    LINK_DETACH,
    NEVER,
    SETTLED,
    Attach,
    DeleteOnNoMessages,
    LinkSource,
    LinkTarget,
    Rejected,
)
from penstock.wire.amqp10.values import Described, Symbol, Timestamp, ULong
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

OFFSET = Symbol("rabbitmq:stream-offset-spec")


def offset(value: object) -> dict[Symbol, Described]:
    return {OFFSET: Described(OFFSET, value)}


async def condition_of(peer: Peer, link: LinkEndpoint) -> str:
    await peer.until(lambda: link in peer.detached)
    error = peer.detached[link]
    assert error is not None
    return error.condition


# Exchanges and topics.


async def test_an_exchange_with_a_key_routes_by_that_key(peer: Peer, broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.bind("amq.direct", vhost.declare_queue("q"), "red")
    out = await peer.sender("/exchange/amq.direct/red")
    assert await peer.send(out, Amqp10Message(b"x")) == ACCEPTED
    await peer.receiver("/queues/q", credit=1)
    assert (await peer.receive())[0].body == b"x"


async def test_without_a_key_the_subject_is_the_key(peer: Peer, broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.bind("amq.direct", vhost.declare_queue("q"), "red")
    out = await peer.sender("/exchanges/amq.direct")
    message = Amqp10Message(b"x", properties=Amqp10Properties(subject="red"))
    assert await peer.send(out, message) == ACCEPTED


async def test_a_topic_is_subscribed_to_by_a_pattern(connect: Connect) -> None:
    here, there = await connect("here"), await connect("there")
    await here.receiver("/topic/weather.*", credit=5)
    out = await there.sender("/topic/weather.rain")
    assert await there.send(out, Amqp10Message(b"wet")) == ACCEPTED
    [message] = await here.receive()
    assert message.body == b"wet"
    assert (message.message_annotations or {})["x-routing-key"] == "weather.rain"


async def test_a_subscription_goes_with_its_link(peer: Peer, broker: Broker) -> None:
    link = await peer.receiver("/topic/a.b", credit=5)
    assert len(broker.vhosts["/"].queues) == 1
    link.detach()
    peer.flush()
    await peer.sender("/topic/a.b")  # answered after the detach
    assert not broker.vhosts["/"].queues


async def test_a_durable_subscription_waits_for_its_client(connect: Connect) -> None:
    first = await connect("client")
    await first.receiver("/topic/news", name="sub", durable=1, expiry_policy=NEVER)
    await first.hang_up()
    other = await connect("other")
    out = await other.sender("/topic/news")
    assert await other.send(out, Amqp10Message(b"x", header=Amqp10Header(durable=True))) == ACCEPTED
    again = await connect("client")
    await again.receiver("/topic/news", name="sub", credit=1, durable=1, expiry_policy=NEVER)
    assert (await again.receive())[0].body == b"x"


async def test_a_shared_subscription_is_nobodys_alone(connect: Connect, broker: Broker) -> None:
    one, two = await connect("one"), await connect("two")
    capabilities = ("shared", "global")
    shared: dict[str, Any] = {"durable": 1, "expiry_policy": NEVER, "capabilities": capabilities}
    first = await one.receiver("/topic/news", name="sub", credit=1, **shared)
    await two.receiver("/topic/news", name="sub", credit=1, **shared)
    assert list(broker.vhosts["/"].queues) == ["amqp10.subscription.sub"]
    out = await one.sender("/topic/news")
    for number in range(2):
        await one.send(out, Amqp10Message(str(number).encode()))
    assert len(await one.receive()) == len(await two.receive()) == 1
    first.detach()
    one.flush()
    await one.sender("/topic/news")
    assert broker.vhosts["/"].queues


async def test_a_subscription_may_have_many_keys(peer: Peer) -> None:
    name = Symbol("apache.org:legacy-amqp-topic-binding:string")
    link = await peer.receiver(
        "/exchange/amq.topic", credit=9, filter={name: Described(name, ["a.*", "*.b", "c"])}
    )
    assert link.remote is not None
    assert link.remote.source is not None
    assert name in (link.remote.source.filter or {})
    for key in ("a.b", "x.b", "c", "d"):
        await peer.send(await peer.sender(f"/topic/{key}"), Amqp10Message(key.encode()))
    assert [message.body for message in await peer.receive(3)] == [b"a.b", b"x.b", b"c"]


async def test_a_headers_exchange_is_bound_by_a_filter(peer: Peer) -> None:
    name = Symbol("headers")
    described = Described(ULong(0x468C00000002), {"x-match": "all", "colour": "red"})
    await peer.receiver("/exchange/amq.headers", credit=2, filter={name: described})
    out = await peer.sender("/exchange/amq.headers/")
    for colour in ("blue", "red"):
        message = Amqp10Message(colour.encode(), application_properties={"colour": colour})
        await peer.send(out, message)
    assert (await peer.receive())[0].body == b"red"


async def test_closing_a_durable_subscription_ends_it(peer: Peer, broker: Broker) -> None:
    link = await peer.receiver("/topic/news", name="sub", durable=1, expiry_policy=NEVER)
    link.detach(closed=False)
    peer.flush()
    again = await peer.receiver("/topic/news", name="sub", durable=1, expiry_policy=NEVER)
    assert list(broker.vhosts["/"].queues) == ["amqp10.subscription.peer.sub"]
    again.detach(closed=True)
    peer.flush()
    await peer.sender("/topic/news")
    assert not broker.vhosts["/"].queues


# The anonymous relay and dynamic nodes.


async def test_a_message_to_the_anonymous_relay_says_where_it_goes(peer: Peer) -> None:
    out = await peer.sender(None)
    await peer.receiver("/queue/q", credit=2)
    to = Amqp10Properties(to="/queue/q")
    assert await peer.send(out, Amqp10Message(b"x", properties=to)) == ACCEPTED
    assert (await peer.receive())[0].body == b"x"


async def test_a_message_that_goes_nowhere_is_rejected_and_the_relay_stays(peer: Peer) -> None:
    out = await peer.sender(None)
    for properties in (
        None,
        Amqp10Properties(to="/nowhere/at/all"),
        Amqp10Properties(to="/exchange/none/x"),
    ):
        outcome = await peer.send(out, Amqp10Message(b"x", properties=properties))
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == NOT_FOUND
    assert out.live


async def test_a_dynamic_source_is_a_queue_to_reply_to(connect: Connect) -> None:
    asker, answerer = await connect("asker"), await connect("answerer")
    replies = await asker.receiver(None, dynamic=True, credit=1)
    assert replies.remote is not None
    assert isinstance(replies.remote.source, LinkSource)
    address = replies.remote.source.address
    assert address.startswith("/queues/amq.gen-")
    out = await answerer.sender(address)
    assert await answerer.send(out, Amqp10Message(b"answer")) == ACCEPTED
    assert (await asker.receive())[0].body == b"answer"


async def test_a_dynamic_node_goes_with_its_link(peer: Peer, broker: Broker) -> None:
    link = await peer.receiver(None, dynamic=True)
    link.detach()
    peer.flush()
    await peer.sender("/topic/x")
    assert not broker.vhosts["/"].queues


async def test_a_dynamic_node_may_stay_until_it_is_empty(peer: Peer, broker: Broker) -> None:
    lifetime = {Symbol("lifetime-policy"): LIFETIME_POLICIES.described(DeleteOnNoMessages())}
    link = await peer.receiver(None, dynamic=True, dynamic_node_properties=lifetime)
    assert link.remote is not None
    assert link.remote.source is not None
    out = await peer.sender(link.remote.source.address)
    await peer.send(out, Amqp10Message(b"x"))
    link.detach()
    peer.flush()
    await peer.sender("/topic/x")
    assert len(broker.vhosts["/"].queues) == 1
    await peer.close()
    assert not broker.vhosts["/"].queues


# Streams.


async def stream_of(peer: Peer, broker: Broker, count: int) -> None:
    broker.vhosts["/"].declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    out = await peer.sender("/stream/s")
    for number in range(count):
        assert await peer.send(out, Amqp10Message(str(number).encode())) == ACCEPTED


async def test_a_stream_is_read_from_its_beginning(peer: Peer, broker: Broker) -> None:
    await stream_of(peer, broker, 3)
    link = await peer.receiver("/stream/s", credit=10, filter=offset("first"))
    received = await peer.receive(3)
    assert [message.body for message in received] == [b"0", b"1", b"2"]
    noted = [(message.message_annotations or {})["x-stream-offset"] for message in received]
    assert noted == [0, 1, 2]
    assert link.remote is not None
    assert link.remote.source is not None
    assert link.remote.source.distribution_mode == COPY
    assert OFFSET in (link.remote.source.filter or {})


async def test_a_stream_is_read_from_an_offset(peer: Peer, broker: Broker) -> None:
    await stream_of(peer, broker, 3)
    await peer.receiver("/stream/s", credit=10, filter=offset(ULong(2)))
    assert (await peer.receive())[0].body == b"2"


async def test_a_stream_is_read_from_a_time(peer: Peer, broker: Broker) -> None:
    await stream_of(peer, broker, 2)
    then = Timestamp(int(datetime(2001, 1, 1, tzinfo=UTC).timestamp() * 1000))
    await peer.receiver("/stream/s", credit=10, filter=offset(then))
    assert [message.body for message in await peer.receive(2)] == [b"0", b"1"]


async def test_a_stream_is_read_from_now_unless_something_else_is_said(
    peer: Peer, broker: Broker
) -> None:
    await stream_of(peer, broker, 2)
    await peer.receiver("/stream/s", credit=10)
    out = await peer.sender("/stream/s")
    await peer.send(out, Amqp10Message(b"new"))
    assert (await peer.receive())[0].body == b"new"


async def test_a_stream_can_be_drained_and_read_settled(peer: Peer, broker: Broker) -> None:
    await stream_of(peer, broker, 3)
    link = await peer.receiver("/stream/s", snd=SETTLED, filter=offset("first"))
    peer.grant(link, 100, drain=True)
    await peer.until(lambda: link.credit == 0)
    assert len(peer.received) == 3


async def test_a_queue_is_no_stream(peer: Peer, broker: Broker) -> None:
    broker.vhosts["/"].declare_queue("q")
    link = await peer.receiver("/stream/q")
    assert await condition_of(peer, link) == "amqp:precondition-failed"


async def test_an_offset_that_makes_no_sense_is_refused(peer: Peer, broker: Broker) -> None:
    await stream_of(peer, broker, 0)
    for value in (True, 1.5, "yesterday", Timestamp(1 << 62)):
        link = await peer.receiver("/stream/s", filter=offset(value))
        assert await condition_of(peer, link) in (
            "amqp:invalid-field",
            "amqp:precondition-failed",
        )


async def test_a_stream_or_a_queue_is_made_as_its_first_sender_wants_it(
    peer: Peer, broker: Broker
) -> None:
    session = await peer.session()
    for address, name in (("/stream/s", "s"), ("/queue/q", "q")):
        link = session.sender(name)
        attach = Attach(
            name,
            0,
            False,
            source=LinkSource(),
            target=LinkTarget(address),
            initial_delivery_count=0,
            properties={Symbol("x-max-length-bytes"): ULong(100_000), Symbol("other"): 1},
        )
        await peer.attach(link, attach)
        queue = broker.vhosts["/"].queues[name]
        assert queue.durable
        assert queue.arguments["x-max-length-bytes"] == 100_000
    assert broker.vhosts["/"].queues["s"].type == "stream"
    missing = await peer.receiver("/stream/none")
    assert await condition_of(peer, missing) == NOT_FOUND


async def test_a_queue_may_pass_with_the_last_who_receives_from_it(
    peer: Peer, broker: Broker
) -> None:
    link = await peer.receiver("/queue/q", expiry_policy=LINK_DETACH)
    assert not broker.vhosts["/"].queues["q"].durable
    link.detach()
    peer.flush()
    await peer.sender("/topic/x")
    assert not broker.vhosts["/"].queues


async def test_messages_of_a_queue_cannot_be_copied(peer: Peer) -> None:
    link = await peer.receiver("/queue/q", distribution_mode=COPY)
    assert await condition_of(peer, link) == NOT_IMPLEMENTED


# What is refused.


async def test_a_link_to_nowhere_is_refused_and_the_session_goes_on(peer: Peer) -> None:
    for address in ("/exchange/none", "/nonsense", "/queues/none", ""):
        link = await peer.sender(address)
        assert await condition_of(peer, link) == NOT_FOUND
        assert link.remote is not None
        assert link.remote.target is None
    assert await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x")) == ACCEPTED


async def test_what_makes_no_sense_of_a_terminus_is_refused(peer: Peer) -> None:
    for link in (
        await peer.receiver("/queue/q", snd=3),
        await peer.sender("/queue/q", rcv=2),
        await peer.receiver("/queue/q", expiry_policy="whenever"),
        await peer.sender("/queue/q", expiry_policy="whenever"),
        await peer.receiver(7),
        await peer.sender("/queue/%ff"),
        await peer.sender("/queue/" + "n" * 256),
    ):
        assert await condition_of(peer, link) == INVALID_FIELD


async def test_permissions_hold_as_in_amqp_0_9_1(connect: Connect, broker: Broker) -> None:
    broker.users.add("lim", "secret")
    broker.users.set_permissions("lim", "/", Permission("", "^amq.topic$", "^mine$"))
    broker.vhosts["/"].declare_queue("mine")
    broker.vhosts["/"].declare_queue("yours")
    peer = await connect(user="lim", password="secret")
    assert (await peer.sender("/topic/x")).live
    assert (await peer.receiver("/queues/mine")).live
    for link in (
        await peer.sender("/queues/mine"),
        await peer.sender("/queue/new"),
        await peer.receiver("/queues/yours"),
        await peer.receiver("/topic/x"),
        await peer.receiver(None, dynamic=True),
    ):
        assert await condition_of(peer, link) == UNAUTHORIZED


async def test_a_user_id_that_is_somebody_elses_is_rejected(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    assert (
        await peer.send(out, Amqp10Message(b"x", properties=Amqp10Properties(user_id=b"guest")))
        == ACCEPTED
    )
    outcome = await peer.send(
        out, Amqp10Message(b"x", properties=Amqp10Properties(user_id=b"root"))
    )
    assert isinstance(outcome, Rejected)
    assert out.live


async def test_a_client_is_let_into_the_virtual_host_it_names(
    connect: Connect, broker: Broker
) -> None:
    broker.add_vhost("other")
    broker.users.set_permissions("guest", "other", Permission(".*", ".*", ".*"))
    peer = await connect(hostname="vhost:other")
    await peer.sender("/queue/q")
    assert "q" in broker.vhosts["other"].queues


async def test_a_virtual_host_that_is_not_there_closes_the_connection(
    port: int, broker: Broker
) -> None:
    broker.add_vhost("closed")
    for name, condition in (("none", NOT_FOUND), ("closed", NOT_ALLOWED)):
        peer = Peer()
        await peer.connect(port, hostname=f"vhost:{name}")
        error = await peer.until_gone()
        assert error is not None
        assert error.condition == condition


async def test_a_content_exchange_is_subscribed_to_by_a_filter(peer: Peer, broker: Broker) -> None:
    broker.vhosts["/"].declare_exchange("market", "x-content")
    name = Symbol("penstock:subscription")
    wanted = Described(name, "[class,eq,stock],[price,<,50]")
    link = await peer.receiver("/exchange/market", credit=5, filter={name: wanted})
    assert link.remote is not None
    assert link.remote.source is not None
    assert link.remote.source.filter == {name: wanted}
    out = await peer.sender("/exchange/market/")
    for price in (61, 49):
        message = Amqp10Message(
            str(price).encode(), application_properties={"class": "stock", "price": price}
        )
        await peer.send(out, message)
    assert (await peer.receive())[0].body == b"49"
    wrong = await peer.receiver("/exchange/market", filter={name: Described(name, "[class")})
    assert await condition_of(peer, wrong) == "amqp:precondition-failed"
    assert len(broker.vhosts["/"].queues) == 1


# Topic permissions: a class is a topic of the content exchange.


def restrict_classes(broker: Broker) -> None:
    vhost, users = broker.vhosts["/"], broker.users
    vhost.declare_exchange("content", "x-content", durable=True)
    vhost.bind("content", vhost.declare_queue("all"), "", {"x-all": True})
    vhost.bind("amq.topic", vhost.queues["all"], "#")
    for exchange in ("content", "amq.topic"):
        users.set_topic_permissions("guest", "/", exchange, TopicPermission("^open", "^open"))


async def test_a_class_that_may_not_be_written_ends_the_link(peer: Peer, broker: Broker) -> None:
    restrict_classes(broker)
    out = await peer.sender("/exchange/content/openly")
    allowed = Amqp10Message(b"", application_properties={"class": "openly"})
    assert await peer.send(out, allowed) == ACCEPTED
    await peer.until(lambda: out.credit > 0)
    peer.post(out, Amqp10Message(b"", application_properties={"class": "secret"}))
    assert await condition_of(peer, out) == UNAUTHORIZED
    assert broker.vhosts["/"].queues["all"].message_count == 1


async def test_a_large_message_of_such_a_class_is_rejected(peer: Peer, broker: Broker) -> None:
    restrict_classes(broker)
    out = await peer.sender("/exchange/content/openly")
    large = Amqp10Message(bytes(40_000), application_properties={"class": "secret"})
    outcome = await peer.send(out, large)
    assert isinstance(outcome, Rejected)
    assert broker.vhosts["/"].queues["all"].message_count == 0


async def test_keys_in_cc_have_to_be_allowed(peer: Peer, broker: Broker) -> None:
    restrict_classes(broker)
    out = await peer.sender("/exchange/amq.topic/open.a")
    await peer.until(lambda: out.credit > 0)
    peer.post(out, Amqp10Message(b"", message_annotations={Symbol("x-cc"): ["secret.b"]}))
    assert await condition_of(peer, out) == UNAUTHORIZED


async def test_a_class_that_may_not_be_read_is_not_subscribed_to(
    peer: Peer, broker: Broker
) -> None:
    restrict_classes(broker)
    name = Symbol("penstock:subscription")
    for text in ("[class,eq,openly]", "[class,eq,secret]"):
        link = await peer.receiver(
            "/exchange/content", filter={name: Described(name, text)}, credit=1
        )
    assert await condition_of(peer, link) == UNAUTHORIZED
