"""The flows that the thesis followed on the wire (4.8), byte by byte.

Version negotiation and SASL, open and begin, attach of a receiver and a flow with a credit of 1024;
attach of a sender on a second session, a transfer and its disposition; then a delivery. What the
client says is written out; of the answers, those of Penstock and of RabbitMQ have to mean the same.
"""

from __future__ import annotations

from penstock.wire.amqp10.values import Described
from tests.integration.amqp10.dialogue import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    CLOSE,
    DISPOSITION,
    FLOW,
    MECHANISMS,
    OPEN,
    OUTCOME,
    TRANSFER,
    Dialogue,
    Frame,
)
from tests.peers import Broker


def written(text: str) -> bytes:
    """Hexadecimal, with text between quotes and comments after a semicolon."""
    found = b""
    for line in text.splitlines():
        code = line.partition(";")[0]
        for index, part in enumerate(code.split("'")):
            found += part.encode() if index % 2 else bytes.fromhex(part)
    return found


def framed(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + body


def test_a_client_consumes_and_publishes_as_the_thesis_saw_it(
    amqp10_broker: Broker, name: str
) -> None:
    queue = f"/queue/{name}".encode()
    address = b"\xa1" + bytes((len(queue),)) + queue
    with Dialogue(amqp10_broker.port) as client:
        # Version negotiation, then SASL.
        client.say(written("'AMQP' 03 01 00 00"))
        assert client.bytes(8) == b"AMQP\x03\x01\x00\x00"
        offered = client.frame()
        assert (offered.kind, offered.code) == (1, MECHANISMS)
        client.say(
            framed(
                written(
                    """
                    00 53 41 c0 16 02       ; sasl-init, a list of two
                    a3 05 'PLAIN'
                    a0 0c 00 'guest' 00 'guest'
                    """
                ),
                kind=1,
            )
        )
        outcome = client.frame()
        assert (outcome.code, outcome.fields[0]) == (OUTCOME, 0)
        client.say(written("'AMQP' 00 01 00 00"))
        assert client.bytes(8) == b"AMQP\x00\x01\x00\x00"

        # Open, and two sessions: one to consume, one to publish.
        client.say(
            framed(
                written(
                    """
                    00 53 10 c0 22 04       ; open, a list of four
                    a1 07 'ichnaea'         ; container-id
                    a1 0e 'localhost:5672'  ; hostname
                    70 00 00 80 00          ; max-frame-size 32768
                    60 00 ff                ; channel-max 255
                    """
                )
            )
        )
        assert client.expect(OPEN).fields[0]
        begin = written(
            """
            00 53 11 c0 0d 04           ; begin, a list of four
            40                          ; remote-channel: we are first
            43                          ; next-outgoing-id 0
            70 00 00 08 00              ; incoming-window 2048
            70 00 00 08 00              ; outgoing-window 2048
            """
        )
        client.say(framed(begin), framed(begin, channel=1))
        sessions = {client.expect(BEGIN).fields[0]: None for _ in range(2)}
        assert sorted(sessions) == [0, 1]

        # The receiver, and a credit of 1024.
        fields = (
            b"\xa1\x08consumer"  # name
            b"\x43"  # handle 0
            b"\x41"  # role: receiver
            b"\x50\x00\x50\x00"  # settle modes: unsettled, first
            + b"\x00\x53\x28\xc0"  # source
            + bytes((len(address) + 1, 1))
            + address
            + b"\x00\x53\x29\x45"  # target
        )
        client.say(framed(b"\x00\x53\x12\xc0" + bytes((len(fields) + 1, 7)) + fields))
        attached = client.expect(ATTACH)
        assert attached.fields[0] == "consumer"
        assert attached.fields[2] is False  # the broker sends
        client.say(
            framed(
                written(
                    """
                    00 53 13 c0 14 07           ; flow, a list of seven
                    43                          ; next-incoming-id 0
                    70 00 00 08 00              ; incoming-window 2048
                    43                          ; next-outgoing-id 0
                    70 00 00 08 00              ; outgoing-window 2048
                    43                          ; handle 0
                    43                          ; delivery-count 0
                    70 00 00 04 00              ; link-credit 1024
                    """
                )
            )
        )

        # The sender, on the other session; a transfer when there is credit.
        fields = (
            b"\xa1\x08producer"
            b"\x43"
            b"\x42"  # role: sender
            b"\x50\x00\x50\x00"
            b"\x00\x53\x28\x45"
            b"\x00\x53\x29\xc0" + bytes((len(address) + 1, 1)) + address + b"\x40\x42\x43"
        )
        client.say(framed(b"\x00\x53\x12\xc0" + bytes((len(fields) + 1, 10)) + fields, channel=1))
        attached = client.expect(ATTACH)
        assert attached.fields[2] is True
        while True:
            flow = client.expect(FLOW)
            if len(flow.fields) > 6 and flow.fields[4] is not None:
                break
        assert flow.fields[6] > 0
        client.say(
            framed(
                written(
                    """
                    00 53 14 c0 09 05           ; transfer, a list of five
                    43                          ; handle 0
                    43                          ; delivery-id 0
                    a0 02 00 01                 ; delivery-tag
                    43                          ; message-format 0
                    42                          ; settled: no
                    00 53 75 a0 0a '<request/>' ; data
                    """
                ),
                channel=1,
            )
        )

        # The disposition says what became of it; the delivery comes on the first session.
        got: dict[int, Frame] = {}
        while len(got) < 2:
            found = client.frame()
            if found.code in (DISPOSITION, TRANSFER):
                got[found.code] = found
            else:
                assert found.code in (0, FLOW)
        told = got[DISPOSITION].fields
        assert (told[0], told[1]) == (True, 0)  # by the receiver, of delivery 0
        assert told[3] is True
        assert isinstance(told[4], Described)
        assert told[4].descriptor == ACCEPTED
        delivery = got[TRANSFER]
        assert delivery.payload.endswith(b"<request/>")
        client.say(
            framed(
                written(
                    """
                    00 53 15 c0 09 05       ; disposition, a list of five
                    41                      ; role: receiver
                    43 43                   ; delivery 0 to 0
                    41                      ; settled
                    00 53 24 45             ; accepted
                    """
                )
            )
        )
        client.say(framed(b"\x00\x53\x18\x45"))
        assert client.expect(CLOSE).condition == ""
