"""Whatever an AMQP 1.0 client sends, the broker answers it, and never by a fault of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.config import BrokerSettings
from penstock.protocols.amqp10.terminal import Amqp10Protocol, Amqp10Terminal
from penstock.server.broker import Broker
from penstock.wire.amqp10.errors import INTERNAL_ERROR
from penstock.wire.amqp10.frames import AMQP_HEADER, SASL_HEADER
from penstock.wire.amqp10.message import (
    Amqp10Message,
    Amqp10Properties,
    AmqpValue,
    encode_message,
)
from penstock.wire.amqp10.performatives import (
    EXPIRY_POLICIES,
    Attach,
    Begin,
    Detach,
    LinkSource,
    LinkTarget,
    Open,
    SaslInit,
    encode_delivery_state,
    encode_performative_frame,
    encode_sasl_frame,
)
from penstock.wire.amqp10.transfers import (
    encode_disposition,
    encode_link_flow,
    encode_next_transfer_prefix,
    encode_transfer_prefix,
)
from tests.wire.amqp10.test_connection_fuzz import frames, states

OPENING = (
    SASL_HEADER
    + encode_sasl_frame(SaslInit("ANONYMOUS", b""))
    + AMQP_HEADER
    + encode_performative_frame(0, Open("peer"))
    + encode_performative_frame(0, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))
    + encode_performative_frame(1, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))
)

#: Links that a client may well have, each way, with what lasts longer than the connection.
LINKS = b"".join(
    [
        encode_performative_frame(
            0,
            Attach(
                f"link-{handle}",
                handle,
                role,
                rcv_settle_mode=handle % 2,
                source=LinkSource(address, expiry_policy=policy),
                target=LinkTarget(address, expiry_policy=policy),
                initial_delivery_count=0,
            ),
        )
        for handle, (role, address, policy) in enumerate(
            [
                (False, "/queue/q", "session-end"),
                (False, None, "never"),
                (True, "/queue/q", "session-end"),
                (True, "/queue/q", "never"),
            ]
        )
    ]
) + b"".join(encode_link_flow(0, 0, 9, 0, 9, handle, 0, 5) for handle in (2, 3))

ADDRESSES = (None, "/queue/q", "/topic/a.b", "/exchange/amq.fanout", "/stream/s", "/queues/q", "/x")

small = st.integers(0, 3)
message = st.sampled_from(
    [
        encode_message(Amqp10Message(b"body")),
        encode_message(Amqp10Message(b"to", properties=Amqp10Properties(to="/queue/q"))),
        encode_message(Amqp10Message(b"large" * 2000)),
        encode_message(Amqp10Message(AmqpValue([1, "two"]))),
        b"",
        b"\x00\x53\x75",
    ]
)


class Cable:
    """A transport whose far end takes everything, and keeps what it was told."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closing = False
        self.max_size = 0

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        """There is no limit."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The far end closes as soon as it hears of it."""
        self.close()

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def pause_reading(self) -> None:
        """What is fed is fed."""

    resume_reading = pause_reading


@st.composite
def said(draw: st.DrawFn) -> bytes:
    """A frame that means something to the broker, or one that may not."""
    channel = draw(st.integers(0, 1))
    match draw(st.integers(0, 10)):
        case 0:
            role = draw(st.booleans())
            lasting: dict[str, Any] = {
                "durable": draw(small),
                "expiry_policy": draw(st.sampled_from([*EXPIRY_POLICIES, "whenever"])),
                "dynamic": draw(st.booleans()),
            }
            address = draw(st.sampled_from(ADDRESSES))
            attach = Attach(
                draw(st.sampled_from("abc")),
                draw(small),
                role,
                snd_settle_mode=draw(small),
                rcv_settle_mode=draw(small),
                source=LinkSource(address, **lasting),
                target=LinkTarget(address, **lasting),
                unsettled=draw(st.none() | st.just({b"\0\0\0\1": None})),
                initial_delivery_count=0,
            )
            return encode_performative_frame(channel, attach)
        case 3:
            return encode_performative_frame(channel, Detach(draw(small), draw(st.booleans())))
        case 4:
            return encode_link_flow(
                channel, 0, 9, 0, 9, draw(small), 0, draw(small), drain=draw(st.booleans())
            )
        case 5 | 6:
            payload = draw(message)
            number, more = draw(st.integers(0, 99)), draw(st.integers(0, 4)) == 0
            head = encode_transfer_prefix(
                0, draw(st.integers(0, 1)), number, number, draw(st.booleans()), more, len(payload)
            )
            return head + payload
        case 7:
            return encode_next_transfer_prefix(0, draw(st.integers(0, 1)), False, False, 0)
        case 8 | 9:
            first = draw(small)
            state = encode_delivery_state(draw(states))
            role, settled = draw(st.booleans()), draw(st.booleans())
            return encode_disposition(0, role, first, first + draw(small), settled, state)
        case _:
            return draw(frames())


Play = Callable[[list[bytes]], bytes]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Feed frames to a terminal of a broker; returns what it wrote."""
    settings_ = BrokerSettings(
        listen=[], anonymous=True, anonymous_user="guest", spool_threshold=4096
    )
    with asyncio.Runner() as runner:
        broker = Broker(settings_, data=tmp_path_factory.mktemp("fuzz"))
        runner.run(broker.start())
        stream = {"x-queue-type": "stream"}
        broker.vhosts["/"].declare_queue("s", durable=True, arguments=stream)
        service = Amqp10Protocol(broker)
        faults: list[dict[str, Any]] = []
        runner.get_loop().set_exception_handler(lambda _, fault: faults.append(fault))

        async def feed(frames: list[bytes]) -> bytes:
            cable = Cable()
            terminal = Amqp10Terminal(service)
            terminal.connection_made(cast(asyncio.Transport, cable))
            terminal.data_received(OPENING + LINKS)
            for data in frames:
                await asyncio.sleep(0)
                if not cable.closing:
                    terminal.data_received(data)
            for _ in range(3):
                await asyncio.sleep(0)
            terminal.connection_lost(None)
            assert not faults
            return bytes(cable.written)

        yield lambda frames: runner.run(feed(frames))
        service.close()
        runner.run(broker.close())


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(said(), max_size=25))
def test_no_client_meets_a_fault_of_the_broker(play: Play, frames: list[bytes]) -> None:
    assert INTERNAL_ERROR.encode() not in play(frames)
