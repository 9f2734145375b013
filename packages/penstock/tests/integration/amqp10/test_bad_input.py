"""What no client should say, over a real socket: the broker names it, and goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.values import Described, Symbol, UByte, UInt, ULong
from tests.integration.amqp10.dialogue import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    INIT,
    MECHANISMS,
    OPEN,
    SASL_HEADER,
    SOURCE,
    TARGET,
    TRANSFER,
    Dialogue,
    frame,
    raw_frame,
)
from tests.peers import Penstock, resident_bytes

FRAMING = "amqp:connection:framing-error"
DECODE = "amqp:decode-error"


@pytest.fixture(autouse=True)
def still_there(penstock: Penstock) -> Iterator[None]:
    """Whatever was said, the next client is served."""
    yield
    with Dialogue(penstock.port) as client:
        client.begin()


def source(address: str) -> Described:
    return Described(ULong(SOURCE), [address])


def target(address: str | None) -> Described:
    return Described(ULong(TARGET), [address])


def attach_sender(client: Dialogue, address: str, handle: int = 0) -> None:
    fields = (f"s{handle}", UInt(handle), False, UByte(0), UByte(0))
    client.say(
        frame(ATTACH, *fields, Described(ULong(SOURCE), []), target(address), None, False, UInt(0))
    )
    client.expect(ATTACH)


def attach_receiver(client: Dialogue, address: str) -> None:
    client.say(
        frame(
            *(ATTACH, "r", UInt(0), True, UByte(0), UByte(0)),
            *(source(address), Described(ULong(TARGET), [])),
        )
    )
    client.expect(ATTACH)


def transfer(number: int, payload: bytes, handle: int = 0, more: bool = False) -> bytes:
    tag = number.to_bytes(4, "big")
    return frame(
        *(TRANSFER, UInt(handle), UInt(number), tag, UInt(0), False, more), payload=payload
    )


DATA = b"\x00\x53\x75\xa0\x02hi"


# Frames.


@pytest.mark.parametrize(
    ("words", "condition"),
    [
        (b"\0\0\0\7\2\0\0\0", FRAMING),  # smaller than its own head
        (b"\xff\xff\xff\xff\2\0\0\0", FRAMING),  # larger than we agreed
        (b"\0\0\0\x0c\1\0\0\0\0\0\0\0", FRAMING),  # its body begins within its head
        (b"\0\0\0\x0c\x40\0\0\0\0\0\0\0", FRAMING),  # its body begins after its end
        (b"\0\0\0\x0c\2\7\0\0\0\0\0\0", FRAMING),  # of no type there is
        (AMQP_HEADER, FRAMING),  # a size of a billion
        (raw_frame(b"\x40"), DECODE),  # no performative
        (raw_frame(b"\x00\x53\x99\x45"), DECODE),  # one that is unknown
        (raw_frame(b"\x00\x53\x11\xc0\xff\x01\x40"), DECODE),  # longer than its frame
        (raw_frame(b"\x00" * 200), DECODE),  # described without end
        (raw_frame(b"\x00\x53\x11" + b"\xc0\xc8\x01" * 60), DECODE),  # nested without end
        (frame(OPEN, "again"), "amqp:illegal-state"),
        (frame(BEGIN, "text", UInt(0), UInt(1), UInt(1)), DECODE),
        (frame(BEGIN, None), DECODE),  # what it has to say is not said
        (frame(ATTACH, "x", UInt(0), False, channel=9), "amqp:not-allowed"),
    ],
)
def test_a_connection_that_lies_is_closed(penstock: Penstock, words: bytes, condition: str) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        client.say(words)
        assert client.expect(CLOSE).condition == condition
        client.say(frame(CLOSE))
        assert client.ended()


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x02\x01\x00\x00",  # TLS within
        b"AMQP\x00\x02\x00\x00",  # a version to come
        AMQP_HEADER,  # nobody may come in without a name
        SASL_HEADER + b"\xff" * 64,
        SASL_HEADER + frame(OPEN, "early"),
        SASL_HEADER + frame(INIT, Symbol("SCRAM-SHA-1"), b"", kind=1),
        SASL_HEADER + frame(INIT, Symbol("PLAIN"), b"guest", kind=1),
        SASL_HEADER + frame(INIT, Symbol("PLAIN"), b"\0guest\0wrong", kind=1),
        SASL_HEADER + raw_frame(b"\x00\x53\x41" + encode(["x" * 60_000]), kind=1),
    ],
)
def test_who_does_not_say_who_it_is_stays_outside(penstock: Penstock, words: bytes) -> None:
    with Dialogue(penstock.port) as client:
        client.say(words)
        assert client.ended()


def test_mechanisms_are_not_the_clients_to_offer(penstock: Penstock) -> None:
    with Dialogue(penstock.port) as client:
        client.say(SASL_HEADER, frame(MECHANISMS, Symbol("PLAIN"), kind=1))
        assert client.ended()


# Sessions.


@pytest.mark.parametrize(
    ("words", "condition"),
    [
        (transfer(0, DATA, handle=5), "amqp:session:unattached-handle"),
        (frame(DETACH, UInt(5), True), "amqp:session:unattached-handle"),
        (
            frame(FLOW, UInt(0), UInt(9), UInt(0), UInt(9), UInt(5), UInt(0), UInt(1)),
            "amqp:session:unattached-handle",
        ),
        (
            frame(FLOW, UInt(77), UInt(9), UInt(0), UInt(9)),  # of transfers that never were
            "amqp:session:window-violation",
        ),
    ],
)
def test_a_session_that_lies_is_ended_and_the_connection_goes_on(
    penstock: Penstock, words: bytes, condition: str
) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        client.say(words)
        assert client.expect(END).condition == condition
        client.say(frame(END))
        client.say(frame(BEGIN, None, UInt(0), UInt(10), UInt(10), channel=1))
        client.expect(BEGIN)


def test_a_handle_is_used_once(penstock: Penstock, name: str) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_sender(client, f"/queue/{name}")
        fields = ("other", UInt(0), False, UByte(0), UByte(0), source("x"), target(name))
        client.say(frame(ATTACH, *fields, None, False, UInt(0)))
        assert client.expect(END).condition == "amqp:session:handle-in-use"


def test_dispositions_of_what_was_never_sent_are_passed_over(penstock: Penstock, name: str) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_receiver(client, f"/queue/{name}")
        accepted = Described(ULong(0x24), [])
        client.say(frame(DISPOSITION, True, UInt(0), UInt(0xFFFFFFFF), True, accepted))
        client.say(frame(END))
        client.expect(END)


# Links.


@pytest.mark.parametrize(
    "payload",
    [
        b"rubbish",
        b"\x00\x53\x75\xb0\xff\xff\xff\xffhi",
        b"\x00\x53\x73\xc0\x03\x01\x41\x41" + DATA,
        b"\x00\x53\x77\x46",
        b"\x00" * 500,
    ],
)
def test_what_is_no_message_is_not_taken(penstock: Penstock, name: str, payload: bytes) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_sender(client, f"/queue/{name}")
        client.say(transfer(0, payload))
        while (answer := client.frame()).code == FLOW:
            pass
        assert answer.code in (DETACH, DISPOSITION)
        if answer.code == DETACH:
            assert answer.condition == DECODE
        else:
            assert answer.fields[4].descriptor == 0x25  # rejected
            assert answer.fields[4].value[0].value[0] == DECODE
        client.say(frame(END))
        client.expect(END)


def test_credit_is_not_the_senders_to_exceed(penstock: Penstock, name: str) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_sender(client, f"/queue/{name}")
        flow = client.expect(FLOW)
        while len(flow.fields) < 7 or flow.fields[4] is None:
            flow = client.expect(FLOW)
        # In one write, so that the broker cannot give more in between.
        client.say(b"".join(transfer(number, DATA) for number in range(flow.fields[6] + 1)))
        found = client.frame()
        while found.code in (0, FLOW, DISPOSITION):
            found = client.frame()
        assert found.code in (DETACH, END)
        assert found.condition in (
            "amqp:link:transfer-limit-exceeded",
            "amqp:session:window-violation",
        )


def test_a_transfer_on_a_link_that_is_gone(penstock: Penstock, name: str) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_sender(client, f"/queue/{name}")
        client.say(frame(DETACH, UInt(0), True), transfer(0, DATA))
        client.expect(DETACH)
        assert client.expect(END).condition == "amqp:session:unattached-handle"


def test_a_delivery_that_changes_its_number_halfway(penstock: Penstock, name: str) -> None:
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_sender(client, f"/queue/{name}")
        client.say(transfer(0, DATA[:3], more=True), transfer(1, DATA[3:]))
        assert client.expect(DETACH).condition == "amqp:illegal-state"


def test_messages_that_never_end_do_not_fill_the_memory(penstock: Penstock, name: str) -> None:
    piece = bytes(30_000)
    before = resident_bytes(penstock.pid)
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_sender(client, f"/queue/{name}")
        client.say(transfer(0, b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + piece, more=True))
        again = frame(TRANSFER, UInt(0), None, None, None, False, True, payload=piece)
        for _ in range(2000):  # 60 MB of a message of 2 GB
            client.say(again)
        client.say(frame(DETACH, UInt(0), True))
        client.expect(DETACH)
    assert resident_bytes(penstock.pid) - before < 48 << 20


def test_heads_that_never_end_do_not_fill_the_memory(penstock: Penstock, name: str) -> None:
    """The sections before a body are read whole, so they are bounded."""
    piece = bytes(30_000)
    with Dialogue(penstock.port) as client:
        client.begin()
        attach_sender(client, f"/queue/{name}")
        client.say(transfer(0, b"\x00\x53\x74\xd1\x7f\xff\xff\xff\0\0\0\2" + piece, more=True))
        again = frame(TRANSFER, UInt(0), None, None, None, False, True, payload=piece)
        try:
            for _ in range(2000):
                client.say(again)
        except ConnectionError:
            return
        found = client.frame()
        while found.code in (0, FLOW):
            found = client.frame()
        assert found.code in (DETACH, CLOSE, DISPOSITION)


def test_noise_on_an_open_connection(penstock: Penstock) -> None:
    noise = random.Random(7)
    for _ in range(30):
        with Dialogue(penstock.port) as client:
            client.begin()
            body = noise.randbytes(noise.randrange(4, 200))
            client.say(raw_frame(body, channel=noise.randrange(2)))
            client.say(frame(CLOSE))
            assert client.ended()
