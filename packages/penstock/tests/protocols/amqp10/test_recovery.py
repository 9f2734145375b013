"""Links that are interrupted and come back: what was open on them goes on where it was."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.server.broker import Broker
from penstock.wire.amqp10.links import ReceiverLink
from penstock.wire.amqp10.message import Amqp10Message
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    DELIVERY_STATES,
    LINK_DETACH,
    NEVER,
    SECOND,
    Attach,
    LinkSource,
    LinkTarget,
)
from penstock.wire.amqp10.session import Amqp10Session
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer


async def filled(peer: Peer, count: int) -> None:
    out = await peer.sender("/queue/q")
    for number in range(count):
        await peer.send(out, Amqp10Message(str(number).encode()))


async def resume(
    peer: Peer, unsettled: dict[bytes, Any] | None, **source: Any
) -> tuple[ReceiverLink, dict[Any, Any] | None]:
    """Attach the link `r` again; returns it, and what the broker knows of what was open."""
    link = (await peer.session()).receiver("r")
    attach = Attach(
        "r",
        0,
        True,
        source=LinkSource("/queue/q", **source),
        target=LinkTarget(),
        unsettled=unsettled,
    )
    await peer.attach(link, attach)
    assert link.remote is not None
    return link, link.remote.unsettled


async def test_what_was_open_is_resumed_where_the_terminus_lasts(connect: Connect) -> None:
    first, other = await connect("client"), await connect("other")
    await filled(first, 3)
    await first.receiver("/queue/q", name="r", credit=3, expiry_policy=NEVER)
    taken = await first.take(3)
    tags = [delivery.tag for delivery, _ in taken]
    await first.hang_up()
    idle = await other.receiver("/queue/q")
    other.grant(idle, 1, drain=True)
    await other.until(lambda: idle.credit == 0)
    assert not other.received

    again = await connect("client")
    theirs = {tags[0]: DELIVERY_STATES.described(ACCEPTED), tags[1]: None}
    link, known = await resume(again, theirs, expiry_policy=NEVER)
    assert known == {tags[0]: None, tags[1]: None}
    again.grant(link, 3)
    done, open_, fresh = await again.take(3)
    assert (done[0].tag, done[0].resumed, done[0].settled) == (tags[0], True, True)
    assert (open_[0].tag, open_[0].resumed, open_[1].body) == (tags[1], True, b"1")
    assert (fresh[0].resumed, fresh[1].body) == (False, b"2")
    assert fresh[0].tag not in tags


async def test_what_the_client_accepted_meanwhile_is_gone(connect: Connect, broker: Broker) -> None:
    first = await connect("client")
    await filled(first, 1)
    await first.receiver("/queue/q", name="r", credit=1, expiry_policy=NEVER)
    [(delivery, _)] = await first.take()
    await first.hang_up()
    again = await connect("client")
    unsettled = {delivery.tag: DELIVERY_STATES.described(ACCEPTED)}
    link, _ = await resume(again, unsettled, expiry_policy=NEVER)
    again.grant(link, 1)
    await again.take()
    await again.close()
    assert broker.vhosts["/"].queues["q"].message_count == 0


async def test_by_default_what_was_open_ends_with_the_session(connect: Connect) -> None:
    first, other = await connect("client"), await connect("other")
    await filled(first, 1)
    await first.receiver("/queue/q", name="r", credit=1)
    await first.take()
    await other.receiver("/queue/q", credit=1)
    await first.hang_up()
    assert (await other.receive())[0].body == b"0"


async def test_a_link_taken_off_and_put_on_again_goes_on(connect: Connect) -> None:
    peer = await connect("client")
    await filled(peer, 1)
    link = await peer.receiver("/queue/q", name="r", credit=1)
    [(delivery, _)] = await peer.take()
    link.detach(closed=False)
    peer.flush()
    link, known = await resume(peer, {delivery.tag: None})
    assert known == {delivery.tag: None}
    peer.grant(link, 1)
    [(again, message)] = await peer.take()
    assert (again.tag, again.resumed, message.body) == (delivery.tag, True, b"0")


async def test_a_terminus_that_expires_lets_go_of_what_was_open(
    connect: Connect, broker: Broker
) -> None:
    peer, other = await connect("client"), await connect("other")
    await filled(peer, 1)
    link = await peer.receiver("/queue/q", name="r", credit=1, expiry_policy=LINK_DETACH, timeout=1)
    await peer.take()
    link.detach(closed=False)
    peer.flush()
    await other.receiver("/queue/q", credit=1)
    assert (await other.receive())[0].body == b"0"


async def test_a_closed_link_leaves_nothing_behind(connect: Connect) -> None:
    peer = await connect("client")
    await filled(peer, 1)
    link = await peer.receiver("/queue/q", name="r", credit=1, expiry_policy=NEVER)
    [(delivery, _)] = await peer.take()
    link.detach(closed=True)
    peer.flush()
    link, known = await resume(peer, {delivery.tag: None}, expiry_policy=NEVER)
    assert known is None
    peer.grant(link, 1)
    [(again, _)] = await peer.take()
    assert not again.resumed


async def test_what_was_taken_in_need_not_be_sent_again(
    connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await connect("client")
    with monkeypatch.context() as patch:
        patch.setattr(Amqp10Session, "dispose", lambda *_: None)  # the client never gets to settle
        out = await first.sender("/queue/q", name="s", rcv=SECOND, expiry_policy=NEVER)
        assert await first.send(out, Amqp10Message(b"once")) == ACCEPTED
        await first.hang_up()
    again = await connect("client")
    tag = (1).to_bytes(4, "big")
    link = (await again.session()).sender("s")
    attach = Attach(
        "s",
        0,
        False,
        rcv_settle_mode=SECOND,
        source=LinkSource(),
        target=LinkTarget("/queue/q", expiry_policy=NEVER),
        unsettled={tag: None, b"unknown": None},
        initial_delivery_count=0,
    )
    await again.attach(link, attach)
    assert link.remote is not None
    assert link.remote.unsettled == {tag: DELIVERY_STATES.described(ACCEPTED)}
    await again.until(lambda: link.credit > 0)
    link.send(link.resume(1, ACCEPTED, True, None), b"")
    again.flush()
    assert await again.send(link, Amqp10Message(b"twice")) == ACCEPTED
    assert broker.vhosts["/"].queues["q"].message_count == 2
