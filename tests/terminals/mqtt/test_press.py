"""The press: each message set once, however many it is printed for."""

from __future__ import annotations

import pytest

from penstock.broker.contract import RECALLED, Message
from penstock.core.properties import Properties, encode_header, encode_route
from penstock.terminals.mqtt import press as press_module
from penstock.terminals.mqtt.press import ROUTES, Press
from penstock.terminals.mqtt.properties import Property
from penstock.terminals.mqtt.translation import CORRELATION, header_for, plain_header
from tests.mqtt_wire import Published, decode_publish, split


def message(key: str = "a.b", body: bytes = b"hello", flags: int = 0) -> Message:
    return Message(encode_route("amq.topic", key), plain_header(0, len(body)), body, flags)


def read(packet: bytes, version: int) -> Published:
    ((first, body),), rest = split(packet)
    assert not rest
    return decode_publish(first, body, version)


def test_a_message_is_printed_for_each_version() -> None:
    press = Press()
    told = message()
    assert read(press.print4(told), 4) == Published(b"a/b", b"hello")
    assert read(press.print5(told), 5) == Published(b"a/b", b"hello")


def test_it_is_printed_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    press = Press()
    told = message()
    first = press.print5(told)

    def never(*_: object) -> bytes:
        raise AssertionError("printed again")

    monkeypatch.setattr(press_module, "publish", never)
    assert press.print5(told) is first


def test_what_is_alike_is_not_the_same() -> None:
    press = Press()
    press.print5(message(body=b"1"))
    assert read(press.print5(message(body=b"2")), 5).payload == b"2"


def test_properties_are_told_to_5_0_only() -> None:
    press = Press()
    header = header_for({Property.CONTENT_TYPE: "text/plain"}, 0, 5)
    told = Message(encode_route("amq.topic", "a"), header, b"hello")
    assert read(press.print5(told), 5).properties == {Property.CONTENT_TYPE: "text/plain"}
    assert read(press.print4(told), 4) == Published(b"a", b"hello")


def test_the_properties_of_one_message_are_not_told_of_the_next() -> None:
    press = Press()
    header = header_for({Property.CONTENT_TYPE: "text/plain"}, 0, 5)
    press.set(Message(encode_route("amq.topic", "a"), header, b"hello"))
    press.set(message())
    assert press.properties == {}
    assert press.encoded == b"\0"


@pytest.mark.parametrize("version", [4, 5])
def test_what_was_kept_is_flagged(version: int) -> None:
    press = Press()
    told = message(flags=RECALLED)
    packet = press.print4(told) if version == 4 else press.print5(told)
    assert read(packet, version).retain


@pytest.mark.parametrize("key", ["", "a.#", "a.*", "nul\0"])
def test_a_key_that_is_no_topic_is_not_printed(key: str) -> None:
    press = Press()
    told = message(key)
    assert press.print4(told) == press.print5(told) == b""


def test_a_key_that_is_no_text_is_not_printed() -> None:
    press = Press()
    told = Message(b"\x09amq.topic\x01\xff", plain_header(0, 5), b"hello")
    assert press.print5(told) == b""


def test_properties_that_cannot_be_told_do_not_stop_the_press() -> None:
    press = Press()
    header = encode_header(Properties(headers={CORRELATION: b"." * 70_000}), 5)
    told = Message(encode_route("amq.topic", "a"), header, b"hello")
    assert read(press.print5(told), 5).payload == b"hello"


def test_topics_are_remembered_up_to_a_number() -> None:
    press = Press()
    for n in range(ROUTES + 10):
        press.set(message(f"a.{n}"))
    assert read(press.print4(message("a.1")), 4).topic == b"a/1"
    assert len(press._heads) <= ROUTES
