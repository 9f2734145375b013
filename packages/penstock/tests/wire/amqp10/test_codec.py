"""The types of AMQP 1.0 as bytes, and back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.amqp10.codec import decode, decode_whole, encode, skip
from penstock.wire.amqp10.errors import DecodeError, EncodeError
from penstock.wire.amqp10.values import (
    ARRAY,
    BINARY,
    BOOLEAN,
    INT,
    LIST,
    NULL,
    STRING,
    SYMBOL,
    UINT,
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.wire.amqp10.generated import anything, same

GOLDEN = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(200), "50c8"),
    (UShort(300), "60012c"),
    (UInt(0), "43"),
    (UInt(255), "52ff"),
    (UInt(256), "7000000100"),
    (ULong(0), "44"),
    (ULong(255), "53ff"),
    (ULong(256), "800000000000000100"),
    (Byte(-1), "51ff"),
    (Short(-2), "61fffe"),
    (Int(0), "5400"),
    (Int(-128), "5480"),
    (Int(128), "7100000080"),
    (-1, "55ff"),
    (1 << 40, "810000010000000000"),
    (Float(1.5), "723fc00000"),
    (1.5, "823ff8000000000000"),
    (Decimal(b"\1\2\3\4"), "7401020304"),
    (Decimal(bytes(8)), "840000000000000000"),
    (Decimal(bytes(16)), "94" + "00" * 16),
    (Char("é"), "73000000e9"),
    (Timestamp(-1), "83ffffffffffffffff"),
    (UUID(int=7), "98" + "00" * 15 + "07"),
    (b"ab", "a0026162"),
    (b"a" * 256, "b000000100" + "61" * 256),
    ("é", "a102c3a9"),
    ("a" * 256, "b100000100" + "61" * 256),
    (Symbol("PLAIN"), "a305504c41494e"),
    (Symbol("a" * 256), "b300000100" + "61" * 256),
    ([], "45"),
    ([None, True], "c003024041"),
    ([b"a" * 255], "d00000010500000001a0ff" + "61" * 255),
    ({}, "c10100"),
    ({Symbol("a"): UInt(1)}, "c10602a301615201"),
    (Array(SYMBOL, [Symbol("a"), Symbol("bc")]), "e00702a30161026263"),
    (Array(SYMBOL, []), "e00200b3"),
    (Array(BOOLEAN, [True, False]), "e00402560100"),
    (Array(BOOLEAN, [True, True]), "e00402560101"),
    (Array(UINT, [UInt(0), UInt(1)]), "e00a02700000000000000001"),
    (Array(UINT, [UInt(1), UInt(2)]), "e004025201" + "02"),
    (Array(INT, [Int(-1), Int(1000)]), "e00a0271ffffffff000003e8"),
    (Array(NULL, [None, None]), "e0020240"),
    (Array(LIST, [[], [None]]), "e01302d00000000400000000000000050000000140"),
    (Array(STRING, ["a"], Symbol("d")), "e00801" + "00a30164" + "a10161"),
    (Array(ARRAY, [Array(BINARY, [b"x"])]), "e00701e00401a00178"),
    (Described(ULong(0x24), []), "00532445"),
]


@pytest.mark.parametrize(("value", "written"), GOLDEN, ids=[written[:16] for _, written in GOLDEN])
def test_a_value_is_written_in_its_smallest_form(value: Any, written: str) -> None:
    assert encode(value).hex() == written


@pytest.mark.parametrize(("value", "written"), GOLDEN, ids=[written[:16] for _, written in GOLDEN])
def test_what_was_written_is_read_as_it_was(value: Any, written: str) -> None:
    assert same(decode_whole(bytes.fromhex(written)), value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5600", False),
        ("5601", True),
        ("7000000000", UInt(0)),
        ("800000000000000000", ULong(0)),
        ("7100000001", Int(1)),
        ("810000000000000001", 1),
        ("b00000000161", b"a"),
        ("b10000000161", "a"),
        ("b30000000161", Symbol("a")),
        ("c00100", []),
        ("d00000000400000000", []),
        ("d1000000080000000243a10161", {UInt(0): "a"}),
        ("f00000000700000001a30161", Array(SYMBOL, [Symbol("a")])),
        ("e0020343", Array(UINT, [UInt(0)] * 3)),
        ("e0020245", Array(LIST, [[], []])),
    ],
)
def test_a_wider_form_is_read_as_well(written: str, value: Any) -> None:
    assert same(decode_whole(bytes.fromhex(written)), value)


@given(anything)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    assert same(decode_whole(encode(value)), value)


@given(anything, st.binary(max_size=4), st.binary(max_size=4))
def test_a_value_is_read_where_it_stands_and_says_where_it_ends(
    value: Any, before: bytes, after: bytes
) -> None:
    written = encode(value)
    end = len(before) + len(written)
    for buffer in (before + written + after, memoryview(before + written + after)):
        found, at = decode(buffer, len(before), len(buffer))
        assert same(found, value)
        assert at == end
        assert skip(buffer, len(before), len(buffer)) == end


def test_a_descriptor_may_be_described_itself() -> None:
    value = Described(Described(ULong(1), "a"), Described(Symbol("b"), 5))
    written = encode(value)
    assert same(decode_whole(written), value)
    assert skip(written, 0, len(written)) == len(written)


@given(anything, st.data())
def test_a_value_cut_short_is_refused(value: Any, data: st.DataObject) -> None:
    written = encode(value)
    with pytest.raises(DecodeError):
        decode(written, 0, data.draw(st.integers(0, len(written) - 1)))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_value_or_a_decode_error(garbage: bytes) -> None:
    try:
        _, at = decode(garbage, 0, len(garbage))
    except DecodeError:
        return
    assert skip(garbage, 0, len(garbage)) == at


@given(anything, st.data())
def test_a_damaged_value_is_a_value_or_a_decode_error(value: Any, data: st.DataObject) -> None:
    written = bytearray(encode(value))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        decode(written, 0, len(written))


@pytest.mark.parametrize(
    "written",
    [
        "",
        "46",  # no such constructor
        "5602",  # a boolean of two
        "7300110000",  # beyond Unicode
        "730000d800",  # half a surrogate pair
        "a101ff",  # not UTF-8
        "a301e9",  # not ASCII
        "c00102",  # two values in no bytes
        "c0ff0140",  # longer than there is
        "c000",  # too small for its own count
        "c0030140" + "40",  # a byte left over
        "d0ffffffff00000001",
        "d000000004ffffffff",
        "c1020140",  # a key without a value
        "c105044041" + "4042",  # a key twice
        "c103024540",  # a list for a key
        "f00000000700000002a30161",  # an array of fewer
        "e0024140",  # more nulls than anyone needs
        "f000000005ffffffff40",
        "e003010040",  # described by null
        "e0010040",  # longer than it says
        "0053",
        "00",
    ],
)
def test_a_lie_is_refused(written: str) -> None:
    with pytest.raises(DecodeError):
        decode_whole(bytes.fromhex(written))


@pytest.mark.parametrize(
    "written",
    [b"\x00" * 100_000, b"\xc0\xff\x01" * 85, b"\x00\x53\x01" * 50_000, b"\xe0\x04\x01" * 1000],
    ids=["descriptors", "lists", "described", "arrays"],
)
def test_nesting_without_end_is_refused(written: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(written, 0, len(written))
    with pytest.raises(DecodeError):
        decode_whole(_lists(100))


def _lists(depth: int) -> bytes:
    written = b"\x45"
    for _ in range(depth):
        written = b"\xd0" + (len(written) + 4).to_bytes(4, "big") + b"\0\0\0\1" + written
    return written


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UInt(-1),
        UInt(1 << 32),
        ULong(1 << 64),
        Byte(128),
        Int(1 << 31),
        1 << 63,
        Float(1e300),
        Timestamp(1 << 63),
        Char("ab"),
        Char("\ud800"),
        Symbol("é"),
        "\ud800",
        Decimal(b"abc"),
        frozenset(),
        Array(UINT, [1]),
        Array(0x52, [UInt(1)]),
        Array(NULL, [None] * 1000),
        {1: frozenset()},
    ],
    ids=repr,
)
def test_what_no_type_holds_cannot_be_written(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


def test_what_is_nested_too_deep_to_be_read_cannot_be_written() -> None:
    value: Any = []
    for _ in range(1000):
        value = [value]
    with pytest.raises(EncodeError):
        encode(value)
