"""The socket of an AMQP 1.0 client: how it comes in, how it stays alive, what its faults cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.core.config import BrokerSettings
from penstock.server.broker import Broker
from penstock.wire.amqp10.errors import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAMING_ERROR,
    NOT_ALLOWED,
    TRANSFER_LIMIT,
    UNATTACHED_HANDLE,
)
from penstock.wire.amqp10.frames import AMQP_HEADER, HEARTBEAT_FRAME, SASL_HEADER, encode_frame
from penstock.wire.amqp10.message import Amqp10Message, encode_message
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    Close,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    encode_performative_frame,
    encode_sasl_frame,
)
from penstock.wire.amqp10.transfers import (
    encode_link_flow,
    encode_session_flow,
    encode_transfer_prefix,
)
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

PROTOCOL_091 = b"AMQP\x00\x00\x09\x01"


async def dialogue(port: int, said: bytes) -> bytes:
    """Everything the broker answers until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


# Coming in.


async def test_one_port_speaks_both_versions(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PROTOCOL_091)
    assert (await reader.readexactly(11))[7:11] == b"\x00\x0a\x00\x0a"  # connection.start
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for byte in SASL_HEADER:
        writer.write(bytes((byte,)))
        await writer.drain()
    assert await reader.readexactly(8) == SASL_HEADER
    writer.close()


async def test_whoever_speaks_neither_hears_of_0_9_1(port: int) -> None:
    assert await dialogue(port, b"GET / HTTP/1.1\r\n") == PROTOCOL_091


async def test_a_wrong_password_is_an_outcome_of_sasl(port: int, broker: Broker) -> None:
    answer = await dialogue(
        port, SASL_HEADER + encode_sasl_frame(SaslInit("PLAIN", b"\0guest\0wrong"))
    )
    mechanisms = encode_sasl_frame(SaslMechanisms(("PLAIN",)))
    assert answer == SASL_HEADER + mechanisms + encode_sasl_frame(SaslOutcome(1))
    assert broker.kernel.metrics.refused == 1


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS", "SCRAM-SHA-256"])
async def test_mechanisms_that_are_not_offered_are_refused(port: int, mechanism: str) -> None:
    answer = await dialogue(port, SASL_HEADER + encode_sasl_frame(SaslInit(mechanism, b"")))
    assert answer.endswith(encode_sasl_frame(SaslOutcome(1)))


async def test_without_sasl_nobody_comes_in(port: int) -> None:
    assert await dialogue(port, AMQP_HEADER) == SASL_HEADER


async def test_an_open_before_the_header_is_cut_off(port: int) -> None:
    answer = await dialogue(port, SASL_HEADER + encode_performative_frame(0, Open("x")))
    assert answer.endswith(encode_sasl_frame(SaslMechanisms(("PLAIN",))))


async def test_the_broker_says_who_it_is(peer: Peer) -> None:
    assert peer.remote is not None
    assert peer.remote.container_id == "penstock"
    assert peer.remote.offered_capabilities == ("ANONYMOUS-RELAY",)
    assert (peer.remote.properties or {})["product"] == "Penstock"
    assert peer.remote.idle_time_out == 60_000


@pytest.fixture
async def open_broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """One that lets anybody in, on a port for AMQP 1.0 alone, and is not patient."""
    settings = BrokerSettings(
        listen=["amqp10://127.0.0.1:0"],
        anonymous=True,
        anonymous_user="guest",
        heartbeat=1,
        drain_seconds=0.1,
        max_connections=2,
    )
    async with Broker(settings, data=tmp_path / "open") as broker:
        yield broker


def port_of(broker: Broker) -> int:
    port = urlsplit(broker.addresses[0]).port
    assert port is not None
    return port


async def test_where_anybody_may_come_in_sasl_may_be_left_out(open_broker: Broker) -> None:
    said = (
        AMQP_HEADER
        + encode_performative_frame(0, Open("nobody"))
        + encode_performative_frame(0, Close())
    )
    answer = await dialogue(port_of(open_broker), said)
    assert answer.startswith(AMQP_HEADER)
    assert answer.endswith(encode_performative_frame(0, Close()))


async def test_on_a_port_of_its_own_others_are_told_what_is_spoken(open_broker: Broker) -> None:
    assert await dialogue(port_of(open_broker), PROTOCOL_091) == SASL_HEADER


async def test_a_client_that_says_nothing_is_cut_off(tmp_path: Path) -> None:
    for scheme in ("amqp", "amqp10"):
        settings = BrokerSettings(
            listen=[f"{scheme}://127.0.0.1:0"], handshake_timeout=0.1, drain_seconds=0.1
        )
        async with Broker(settings, data=tmp_path / scheme) as broker:
            assert await dialogue(port_of(broker), b"") == b""
            assert (await dialogue(port_of(broker), SASL_HEADER)).startswith(SASL_HEADER)


async def test_a_silent_client_is_gone_after_twice_its_time(open_broker: Broker) -> None:
    peer = await Peer().connect(port_of(open_broker))
    assert await peer.until_gone() is None


async def test_signs_of_life_keep_a_connection(open_broker: Broker) -> None:
    peer = await Peer().connect(port_of(open_broker), idle_time_out=200)
    for _ in range(12):
        await asyncio.sleep(0.25)  # time itself is what is tested
        peer.write(HEARTBEAT_FRAME)
    assert not peer.gone
    await peer.hang_up()


async def test_a_time_out_that_cannot_be_kept_is_refused(open_broker: Broker) -> None:
    peer = await Peer().connect(port_of(open_broker), idle_time_out=1)
    error = await peer.until_gone()
    assert error is not None
    assert error.condition == NOT_ALLOWED


async def test_connections_are_counted(open_broker: Broker) -> None:
    peers = [await Peer().connect(port_of(open_broker)) for _ in range(2)]
    one_too_many = await Peer().connect(port_of(open_broker))
    error = await one_too_many.until_gone()
    assert error is not None
    assert error.condition == NOT_ALLOWED
    for peer in peers:
        await peer.hang_up()


# Faults.


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        pytest.param(b"\x00\x00\x00\x04\x02\x00\x00\x00", FRAMING_ERROR, id="size"),
        pytest.param(b"\x7f\xff\xff\xff\x02\x00\x00\x00", FRAMING_ERROR, id="large"),
        pytest.param(b"\x00\x00\x00\x10\xff\x00\x00\x00" + bytes(8), FRAMING_ERROR, id="offset"),
        pytest.param(encode_frame(0, b"\x00\x53\x1c\x45"), DECODE_ERROR, id="performative"),
        pytest.param(encode_frame(0, b"\x00" * 4000), DECODE_ERROR, id="nested"),
        pytest.param(PROTOCOL_091, FRAMING_ERROR, id="another protocol"),
    ],
)
async def test_a_fault_of_the_connection_costs_the_connection(
    peer: Peer, connect: Connect, data: bytes, condition: str
) -> None:
    other = await connect("other")
    peer.write(data)
    error = await peer.until_gone()
    assert error is not None
    assert error.condition == condition
    assert await other.send(await other.sender("/queue/q"), Amqp10Message(b"x")) == ACCEPTED


async def test_a_transfer_on_no_link_costs_the_session(peer: Peer) -> None:
    session = await peer.session()
    peer.write(encode_transfer_prefix(session.channel, 9, 0, 0, False, False, 0))
    await peer.until(lambda: peer.ended)
    error = peer.ended[0][1]
    assert error is not None
    assert error.condition == UNATTACHED_HANDLE
    other = await peer.session()
    assert (
        await peer.send(await peer.sender("/queue/q", session=other), Amqp10Message(b"x"))
        == ACCEPTED
    )


async def test_more_than_the_credit_costs_the_link(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    await peer.until(lambda: out.credit > 0)
    payload = encode_message(Amqp10Message(b"x"))
    data = b"".join(
        encode_transfer_prefix(
            out.session.channel, out.handle, number, number, False, False, len(payload)
        )
        + payload
        for number in range(20_000)  # one read brings more than there is credit for
    )
    peer.write(data)
    await peer.until(lambda: out in peer.detached)
    error = peer.detached[out]
    assert error is not None
    assert error.condition == TRANSFER_LIMIT


async def test_all_the_credit_there_is_takes_no_memory(peer: Peer) -> None:
    out = await peer.sender("/queue/q")
    link = await peer.receiver("/queue/q")
    for _ in range(50):
        peer.write(
            encode_link_flow(link.session.channel, 0, 0xFFFFFFFF, 0, 9, link.handle, 0, 0xFFFFFFFF)
        )
        peer.write(encode_session_flow(link.session.channel, 0, 0xFFFFFFFF, 0, 9))
    link.credit = 0xFFFFFFFF
    assert await peer.send(out, Amqp10Message(b"x")) == ACCEPTED
    assert (await peer.receive())[0].body == b"x"


# The end.


async def test_a_broker_that_stops_says_so(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path / "stops") as broker:
        peer = await Peer().connect(port_of(broker))
    error = await peer.until_gone()
    assert error is not None
    assert error.condition == CONNECTION_FORCED


async def test_management_sees_the_connection(peer: Peer, broker: Broker) -> None:
    await peer.receiver("/queue/q", name="r", credit=5)
    await peer.sender("/queue/q")
    [terminal] = broker.clients
    described = terminal.describe()
    assert (described["protocol"], described["user"]) == ("AMQP 1.0", "guest")
    assert described["container_id"] == "peer"
    [session] = terminal.describe_channels()
    assert session["consumer_count"] == 1
    [consumer] = terminal.describe_consumers()
    assert (consumer["consumer_tag"], consumer["queue"]["name"]) == ("r", "q")


async def test_a_lost_connection_can_be_described(peer: Peer, broker: Broker) -> None:
    await peer.receiver("/queue/q", name="r", credit=5)
    [terminal] = broker.clients
    await peer.hang_up()
    await broker._wait_for_clients(30.0)
    described = terminal.describe()
    assert (described["state"], described["user"]) == ("closing", "guest")
    assert terminal.describe_channels() == terminal.describe_consumers() == []
