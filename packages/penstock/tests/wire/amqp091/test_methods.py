"""Methods: the table against pamqp's, golden bytes, round trips, and bad input."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pamqp.base
import pamqp.commands
import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import CommandInvalid, WireSyntaxError
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.methods import METHODS, AmqpMethod, decode_method, encode_method

EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)

#: Not in pamqp: the class that 0-9-1 dropped.
SHARED = [method for method in METHODS.values() if method.id in pamqp.commands.INDEX_MAPPING]

#: A value for each type that no default would give.
SAMPLES: dict[str, Any] = {
    "bit": True,
    "octet": 9,
    "short": 515,
    "long": 70_000,
    "longlong": 2**40,
    "timestamp": 2**33,
    "shortstr": "é",
    "opaque": "a.b",
    "longstr": b"\xff\x00",
    "table": {"a": "b"},
}

values = {
    "bit": st.booleans(),
    "octet": st.integers(0, 2**8 - 1),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": st.text(max_size=60),
    "opaque": st.binary(max_size=255).map(lambda data: data.decode("utf-8", "surrogateescape")),
    "longstr": st.binary(max_size=300),
    "table": st.dictionaries(st.text(max_size=20), st.integers(-5, 5) | st.text(max_size=9)),
}


@EVERY
def test_each_method_has_a_constant_named_for_it(method: AmqpMethod) -> None:
    assert getattr(methods, method.handler.upper()) == method.id


def test_every_constant_has_a_method() -> None:
    source = Path(methods.__file__).read_text()
    constants = re.findall(r"^([A-Z_]+): Final = \d+ << 16", source, re.MULTILINE)

    assert {getattr(methods, name) for name in constants} == set(METHODS)


@pytest.mark.parametrize("method", SHARED, ids=lambda method: method.name)
def test_the_fields_are_pamqps_in_its_order(method: AmqpMethod) -> None:
    theirs: Any = pamqp.commands.INDEX_MAPPING[method.id]

    assert ["shortstr" if kind.name == "opaque" else kind.name for _, kind in method.fields] == [
        theirs.amqp_type(name) for name in theirs.attributes()
    ]


def test_pamqp_misses_only_what_the_standard_dropped() -> None:
    missing = {method.name for method in METHODS.values() if method not in SHARED}

    assert missing <= {"access.request", "access.request-ok"}


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@pytest.mark.parametrize("method", SHARED, ids=lambda method: method.name)
def test_pamqp_reads_the_frames_we_write(method: AmqpMethod) -> None:
    sent = {name: SAMPLES[kind.name] for name, kind in method.fields}
    # Fields that 0-9-1 fixed must be empty for pamqp.
    fixed = {"ticket": 0, "capabilities": "", "insist": False, "known_hosts": "", "cluster_id": ""}
    fixed |= {"out_of_band": "0", "channel_id": b"0", "exclusive": False}
    sent = {name: fixed.get(name, value) for name, value in sent.items()}
    frame = methods.encode_method_frame(3, method.id, **sent)

    consumed, channel, theirs = pamqp.frame.unmarshal(frame)

    assert (consumed, channel) == (len(frame), 3)
    assert isinstance(theirs, pamqp.base.Frame)
    read = [value for _, value in theirs]
    expected = [
        value.decode() if isinstance(value, bytes) and value != b"\xff\x00" else value
        for value in sent.values()
    ]
    assert read == expected


@EVERY
@given(data=st.data())
def test_what_is_written_is_read_back(method: AmqpMethod, data: st.DataObject) -> None:
    sent = {name: data.draw(values[kind.name]) for name, kind in method.fields}

    decoded, arguments = decode_method(encode_method(method.id, **sent))

    assert decoded is method
    assert vars(arguments) == sent


def test_the_golden_bytes_of_queue_declare() -> None:
    frame = methods.encode_method_frame(
        1, methods.QUEUE_DECLARE, queue="q", durable=True, no_wait=True, arguments={"x": 1}
    )

    assert frame == (
        b"\x01\x00\x01\x00\x00\x00\x14"  # method, channel 1, 20 bytes
        b"\x00\x32\x00\x0a"  # queue.declare
        b"\x00\x00\x01q\x12"  # ticket, queue, bits 1 and 4
        b"\x00\x00\x00\x07\x01xI\x00\x00\x00\x01"
        b"\xce"
    )


def test_arguments_are_attributes_named_as_the_standard_names_them() -> None:
    payload = encode_method(methods.BASIC_CONSUME, queue="q", no_ack=True)

    method, arguments = decode_method(payload)

    assert method.name == "basic.consume"
    assert method.handler == "basic_consume"
    assert (arguments.queue, arguments.no_ack, arguments.no_wait) == ("q", True, False)
    assert arguments.arguments == {}


def test_the_response_to_an_authentication_challenge_is_bytes() -> None:
    payload = encode_method(methods.CONNECTION_START_OK, response=b"\x00guest\x00\xff")

    assert decode_method(payload)[1].response == b"\x00guest\x00\xff"


def test_content_follows_the_four_methods_that_carry_it() -> None:
    assert {method.name for method in METHODS.values() if method.content} == {
        "basic.publish",
        "basic.return",
        "basic.deliver",
        "basic.get-ok",
    }


def test_a_field_that_does_not_exist_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match=r"tx\.select has no field 'nowait'"):
        encode_method(methods.TX_SELECT, nowait=True)


# Bad input.


@EVERY
def test_a_method_cut_anywhere_is_refused(method: AmqpMethod) -> None:
    payload = encode_method(method.id, **{name: SAMPLES[kind.name] for name, kind in method.fields})

    for length in range(len(payload)):
        with pytest.raises(WireSyntaxError):
            decode_method(payload[:length])


@EVERY
def test_bytes_after_the_last_field_are_refused_as_rabbitmq_does(method: AmqpMethod) -> None:
    with pytest.raises(WireSyntaxError, match=f"1 bytes follow the fields of {method.name}"):
        decode_method(encode_method(method.id) + b"\x00")


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(CommandInvalid, match="unknown method 99 of class 50"):
        decode_method(b"\x00\x32\x00\x63")


def test_a_name_that_is_not_text_is_refused_but_a_routing_key_is_not() -> None:
    with pytest.raises(WireSyntaxError, match=r"cannot read queue\.purge: .* is not UTF-8"):
        decode_method(b"\x00\x32\x00\x1e\x00\x00\x01\xff\x00")

    _, arguments = decode_method(b"\x00\x3c\x00\x28\x00\x00\x00\x01\xff\x00")

    assert arguments.routing_key == "\udcff"


@given(st.sampled_from(list(METHODS)), st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(number: int, fields: bytes) -> None:
    try:
        method, arguments = decode_method(number.to_bytes(4, "big") + fields)
    except WireSyntaxError:
        return
    again = encode_method(method.id, **vars(arguments))
    assert encode_method(method.id, **vars(decode_method(again)[1])) == again


@given(st.binary(max_size=60))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    with suppress(WireSyntaxError, CommandInvalid):
        decode_method(payload)
