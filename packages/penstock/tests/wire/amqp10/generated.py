"""Values of every type of AMQP 1.0, for property tests; and whether two are truly the same."""

from __future__ import annotations

import math
import struct
from typing import Any

from hypothesis import strategies as st

from penstock.wire.amqp10 import values as v


def _whole(kind: Any, bits: int, signed: bool) -> st.SearchStrategy[Any]:
    least = -(1 << bits - 1) if signed else 0
    return st.integers(least, least + (1 << bits) - 1).map(kind)


def _floats() -> st.SearchStrategy[v.Float]:
    return st.floats(width=32, allow_nan=False).map(v.Float)


characters = st.characters(codec="utf-8")
texts = st.text(characters, max_size=300)
symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(v.Symbol)

#: Simple types by their code.
BY_CODE: dict[int, st.SearchStrategy[Any]] = {
    v.NULL: st.none(),
    v.BOOLEAN: st.booleans(),
    v.UBYTE: _whole(v.UByte, 8, False),
    v.USHORT: _whole(v.UShort, 16, False),
    v.UINT: _whole(v.UInt, 32, False),
    v.ULONG: _whole(v.ULong, 64, False),
    v.BYTE: _whole(v.Byte, 8, True),
    v.SHORT: _whole(v.Short, 16, True),
    v.INT: _whole(v.Int, 32, True),
    v.LONG: _whole(int, 64, True),
    v.FLOAT: _floats(),
    v.DOUBLE: st.floats(allow_nan=False),
    v.DECIMAL32: st.binary(min_size=4, max_size=4).map(v.Decimal),
    v.DECIMAL64: st.binary(min_size=8, max_size=8).map(v.Decimal),
    v.DECIMAL128: st.binary(min_size=16, max_size=16).map(v.Decimal),
    v.CHAR: characters.map(v.Char),
    v.TIMESTAMP: _whole(v.Timestamp, 64, True),
    v.UUID: st.uuids(),
    v.BINARY: st.binary(max_size=300),
    v.STRING: texts,
    v.SYMBOL: symbols,
}

simple = st.one_of(*BY_CODE.values())

arrays = st.sampled_from(sorted(BY_CODE)).flatmap(
    lambda code: st.builds(
        v.Array,
        st.just(code),
        st.lists(BY_CODE[code], max_size=20),
        st.none() | symbols | BY_CODE[v.ULONG],
    )
)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=5)
    maps = st.dictionaries(simple, inner, max_size=5)
    return st.one_of(
        lists,
        maps,
        st.builds(v.Described, symbols | BY_CODE[v.ULONG], inner),
        st.builds(v.Array, st.just(v.LIST), st.lists(lists, max_size=4)),
        st.builds(v.Array, st.just(v.MAP), st.lists(maps, max_size=4)),
        st.builds(v.Array, st.just(v.ARRAY), st.lists(arrays, max_size=4)),
    )


anything = st.recursive(simple | arrays, _compound, max_leaves=20)
#: The same, but not much of it at a time.
something = st.recursive(simple | arrays, _compound, max_leaves=4)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same type all the way down."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return struct.pack(">d", one) == struct.pack(">d", other) or (
                math.isnan(one) and math.isnan(other)
            )
        case list():
            return len(one) == len(other) and all(map(same, one, other))
        case dict():
            return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
        case v.Described():
            return same(one.descriptor, other.descriptor) and same(one.value, other.value)
        case v.Array():
            return (
                one.code == other.code
                and same(one.descriptor, other.descriptor)
                and same(list(one.values), list(other.values))
            )
    return bool(one == other)
