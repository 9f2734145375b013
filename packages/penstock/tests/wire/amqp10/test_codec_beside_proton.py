"""Our bytes and qpid-proton's mean the same to both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.amqp10 import values as v
from penstock.wire.amqp10.codec import decode_whole, encode
from tests.wire.amqp10.generated import BY_CODE, same

proton = pytest.importorskip("proton", reason="missing: python-qpid-proton")

#: How proton names what Python lacks. Its decimals are numbers, ours bits: they are not compared.
KINDS = {
    v.UByte: "ubyte",
    v.UShort: "ushort",
    v.UInt: "uint",
    v.ULong: "ulong",
    v.Byte: "byte",
    v.Short: "short",
    v.Int: "int32",
    v.Float: "float32",
    v.Char: "char",
    v.Timestamp: "timestamp",
    v.Symbol: "symbol",
}


def theirs(value: Any) -> Any:
    match value:
        case v.Array():
            return proton.Array(
                proton.UNDESCRIBED if value.descriptor is None else theirs(value.descriptor),
                PROTON_TYPES[value.code],
                *map(theirs, value.values),
            )
        case v.Described():
            return proton.Described(theirs(value.descriptor), theirs(value.value))
        case list():
            return [theirs(one) for one in value]
        case dict():
            return {theirs(key): theirs(one) for key, one in value.items()}
    name = KINDS.get(type(value))
    return value if name is None else getattr(proton, name)(value)


PROTON_TYPES = {
    code: getattr(proton.Data, name)
    for code, name in {
        v.UINT: "UINT",
        v.ULONG: "ULONG",
        v.INT: "INT",
        v.LONG: "LONG",
        v.STRING: "STRING",
        v.SYMBOL: "SYMBOL",
        v.BINARY: "BINARY",
        v.DOUBLE: "DOUBLE",
        v.UUID: "UUID",
    }.items()
}

_DECIMALS = (v.DECIMAL32, v.DECIMAL64, v.DECIMAL128)
simple = st.one_of(*(some for code, some in BY_CODE.items() if code not in _DECIMALS))
arrays = st.sampled_from(sorted(PROTON_TYPES)).flatmap(
    lambda code: st.builds(v.Array, st.just(code), st.lists(BY_CODE[code], min_size=1, max_size=5))
)
#: What proton loses is left out: where a described value is described again, what follows it.
keys = BY_CODE[v.SYMBOL] | BY_CODE[v.STRING] | BY_CODE[v.UUID]
shared = st.recursive(
    simple | arrays,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(v.Described, BY_CODE[v.SYMBOL] | BY_CODE[v.ULONG], simple)
    ),
    max_leaves=8,
)


@given(shared)
def test_we_read_what_proton_writes(value: Any) -> None:
    data = proton.Data()
    data.put_object(theirs(value))
    assert same(decode_whole(data.encode()), value)


@given(shared)
def test_proton_reads_what_we_write(value: Any) -> None:
    written = encode(value)
    data = proton.Data()
    assert data.decode(written) == len(written)
    data.rewind()
    data.next()
    again = proton.Data()
    again.put_object(data.get_object())
    assert same(decode_whole(again.encode()), value)
