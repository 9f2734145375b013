"""What a client is told when it is wrong; and that the broker goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Self

import pytest

from penstock.client.errors import BrokerUnreachable
from penstock.client.padres import PadresClient
from penstock.content import LanguageError
from penstock.core.errors import (
    AccessRefused,
    NotFound,
    PenstockError,
    PreconditionFailed,
    ResourceLocked,
)
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.frames import (
    PROTOCOL_HEADER,
    CloseFrame,
    ConfirmFrame,
    ErrorFrame,
    MessageFrame,
    OpenFrame,
    PadresFrame,
    PadresFrameReader,
    PeerRole,
    encode_frame,
)
from tests.padres import SECONDS, PadresBroker, Watcher
from tests.peers import free_port

HELLO = OpenFrame(PeerRole.CLIENT, "", user="guest", password="guest")


# Words.


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("[class,neq,x]", 7),
        ("[class,eq,x],[a,eq,60]", 19),
        ("[class,eq,x],[a,=,'x']", 18),
        ("[class,eq,x],[a,<,]", 18),
        ("[class,eq,x],[a,<]", 17),
        ("[class,eq,x],[a,5]", 16),
        ("[class,eq,x],[,=,5]", 14),
        ("[class,eq,x],[a,=,5", 19),
        ("[class,eq,x][a,=,5]", 12),
        ("[class,eq,x],a,=,5]", 13),
        ("[class,eq,x],[a,=,007]", 19),
        ("[class,eq,x],[a=5]", 15),
        ("[a,=,5]", 1),
        ("", 0),
    ],
)
async def test_a_mistake_in_a_subscription_has_a_place(
    ada: PadresClient, text: str, position: int
) -> None:
    with pytest.raises(LanguageError, match="expected") as refused:
        await ada.subscribe(text)

    assert refused.value.position == position


@pytest.mark.parametrize("verb", ["advertise", "subscribe", "publish"])
async def test_an_attribute_cannot_occur_twice(ada: PadresClient, kind: str, verb: str) -> None:
    twice = "[a,1],[a,2]" if verb == "publish" else "[a,=,1],[a,=,2]"
    equal = "" if verb == "publish" else "eq,"

    with pytest.raises(LanguageError, match="column"):
        await getattr(ada, verb)(f"[class,{equal}{kind}],{twice}")


async def test_an_attribute_may_occur_twice_where_that_is_asked_for(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[a,isPresent,0]")
    await bob.client.subscribe(f"[class,eq,{kind}],[a,>,1],[a,<,3]", several=True)
    for value in (1, 2, 3):
        await ada.publish(f"[class,{kind}],[a,{value}]")

    assert [one["a"] for one in await bob.got()] == [2]


async def test_a_composite_without_its_braces_is_refused(ada: PadresClient, kind: str) -> None:
    with pytest.raises(LanguageError):
        await ada.subscribe(f"{{[class,eq,{kind}]}}&{{[class,eq,{kind}]}}")


async def test_an_unknown_id_cannot_be_withdrawn(ada: PadresClient) -> None:
    with pytest.raises(NotFound, match="B1-M99"):
        await ada.withdraw("B1-M99")


@pytest.mark.parametrize(
    "kind", [EnvelopeKind.UNADVERTISE, EnvelopeKind.UNSUBSCRIBE, EnvelopeKind.UNCOMPOSITE]
)
async def test_what_another_has_asked_for_cannot_be_withdrawn(
    padres: PadresBroker, ada: PadresClient, kind: EnvelopeKind
) -> None:
    theirs = await ada.subscribe("[class,eq,stock]")

    async with Raw(padres) as raw:
        await raw.hello()
        raw.say(MessageFrame(PadresEnvelope(kind, theirs), 1))
        answer = await raw.hear()

    assert isinstance(answer, ErrorFrame)
    assert (answer.receipt, answer.code) == (1, 404)


async def test_a_refused_message_leaves_the_client_connected(ada: PadresClient, kind: str) -> None:
    with pytest.raises(PenstockError):
        await ada.publish("nonsense")
    await ada.advertise(f"[class,eq,{kind}]")

    assert await ada.publish(f"[class,{kind}]")


# Connecting.


async def test_nobody_answers() -> None:
    with pytest.raises(BrokerUnreachable, match="connection refused"):
        await PadresClient(f"padres://127.0.0.1:{free_port()}").open()


async def test_a_broker_of_another_id_is_not_the_one_that_was_meant(padres: PadresBroker) -> None:
    with pytest.raises(NotFound, match="this is broker Broker1, not Elsewhere"):
        await PadresClient(padres.url.replace("Broker1", "Elsewhere")).open()


async def test_a_wrong_password_is_refused(padres: PadresBroker) -> None:
    with pytest.raises(AccessRefused):
        await PadresClient(padres.url.replace("//", "//guest:wrong@")).open()


async def test_a_virtual_host_that_is_not_there_is_refused(padres: PadresBroker) -> None:
    with pytest.raises(NotFound, match="no vhost 'none'"):
        await PadresClient(f"{padres.url}?vhost=none").open()


async def test_a_name_that_is_taken_is_refused(padres: PadresBroker, ada: PadresClient) -> None:
    with pytest.raises(ResourceLocked, match="already connected"):
        await PadresClient(padres.url, id=ada.id).open()


async def test_a_name_that_is_none_is_refused(padres: PadresBroker) -> None:
    with pytest.raises(PreconditionFailed, match="invalid client id"):
        await PadresClient(padres.url, id="two words").open()


# Bytes.


class Raw:
    """A connection without manners."""

    def __init__(self, broker: PadresBroker) -> None:
        self._port = broker.port
        self._frames = PadresFrameReader(1 << 20)
        self._found: list[PadresFrame] = []

    async def __aenter__(self) -> Self:
        self._in, self._out = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._out.close()

    def write(self, data: bytes) -> None:
        self._out.write(data)

    def say(self, frame: PadresFrame) -> None:
        self.write(encode_frame(frame))

    async def hello(self) -> OpenFrame:
        self.write(PROTOCOL_HEADER + encode_frame(HELLO))
        answer = await self.hear()
        assert isinstance(answer, OpenFrame)
        return answer

    async def hear(self) -> PadresFrame | None:
        """The next frame; None when the broker has hung up."""
        async with asyncio.timeout(SECONDS):
            while not self._found:
                data = await self._in.read(65536)
                if not data:
                    return None
                self._found += self._frames.feed(data)
        return self._found.pop(0)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 501),
        (PROTOCOL_HEADER[:-1] + b"\x63", 501),
        (PROTOCOL_HEADER + b"\xff\xff\xff\xff", 311),
        (PROTOCOL_HEADER + b"\x00\x00\x00\x01\x63", 502),
        (PROTOCOL_HEADER + encode_frame(ConfirmFrame(1)), 501),
        (PROTOCOL_HEADER + encode_frame(HELLO) + encode_frame(HELLO), 501),
        (PROTOCOL_HEADER + encode_frame(replace(HELLO, user="", password="")), 403),
    ],
    ids=["http", "version", "size", "kind", "no greeting", "two greetings", "nobody"],
)
async def test_bad_bytes_end_the_connection_with_a_reason(
    padres: PadresBroker, data: bytes, code: int
) -> None:
    async with Raw(padres) as raw:
        raw.write(data)
        close = await raw.hear()
        if isinstance(close, OpenFrame):
            close = await raw.hear()
        assert await raw.hear() is None

    assert isinstance(close, CloseFrame)
    assert close.code == code
    assert close.reason


async def test_a_frame_too_large_is_refused_in_time(padres: PadresBroker) -> None:
    async with Raw(padres) as raw:
        greeting = await raw.hello()
        raw.write((greeting.largest + 1).to_bytes(4, "big"))
        close = await raw.hear()

        assert isinstance(close, CloseFrame)
        assert close.code == 311
        assert await raw.hear() is None


async def test_what_is_between_brokers_is_not_for_clients_to_say(
    padres: PadresBroker, bob: Watcher, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}]")

    async with Raw(padres) as raw:
        await raw.hello()
        raw.say(
            MessageFrame(
                PadresEnvelope(EnvelopeKind.ADVERTISE, f"[class,eq,{kind}]", id="B9-M1", tree="t"),
                1,
            )
        )
        forged = PadresEnvelope(
            EnvelopeKind.PUBLISH,
            f"[class,{kind}]",
            id="B9-M2",
            source="B9-eve",
            tree="t",
            target_brokers=("B9",),
        )
        raw.say(MessageFrame(forged, 2))
        assert isinstance(await raw.hear(), ConfirmFrame)
        assert isinstance(await raw.hear(), ConfirmFrame)

    (received,) = await bob.got()
    assert received.id.startswith("Broker1-M")
    assert received.source.startswith("Broker1-")


async def test_a_refusal_is_told_even_when_no_answer_was_asked_for(padres: PadresBroker) -> None:
    async with Raw(padres) as raw:
        await raw.hello()
        raw.say(MessageFrame(PadresEnvelope(EnvelopeKind.PUBLISH, "[class,never],[seen,1]")))
        answer = await raw.hear()

    assert isinstance(answer, ErrorFrame)
    assert (answer.receipt, answer.code) == (0, 406)
