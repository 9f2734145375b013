"""Composite types: a descriptor and a list of fields, decoded and encoded by tables.

A `CompositeType` combines a dataclass, which has the names and defaults of the fields, with a
`CompositeField` for each field, which checks values. A field without a default is mandatory. A list
that does not fit raises `DecodeError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.values import (
    SYMBOL,
    Array,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
)


@dataclass(frozen=True, slots=True)
class CompositeField:
    name: str
    read: Callable[[Any], Any]  #: from the decoded value; raises `TypeError` for a wrong one
    write: Callable[[Any], Any]  #: to the value to encode


def _simple_field(
    name: str, taken: type, write: Callable[[Any], Any], made: type | None = None
) -> CompositeField:
    def read(value: Any) -> Any:
        if not isinstance(value, taken):
            raise TypeError
        return value if made is None else made(value)

    return CompositeField(name, read, write)


def _same(value: Any) -> Any:
    return value


def _symbols(value: Any) -> tuple[str, ...]:
    """Read one symbol, or an array of them."""
    if isinstance(value, Array):
        if not all(isinstance(one, Symbol) for one in value.values):
            raise TypeError
        return tuple(value.values)
    if not isinstance(value, Symbol):
        raise TypeError
    return (value,)


def _encode_symbols(values: tuple[str, ...]) -> Any:
    return Array(SYMBOL, [Symbol(value) for value in values]) if values else None


BOOLEAN: Final = _simple_field("boolean", bool, bool)
UBYTE: Final = _simple_field("ubyte", UByte, UByte, int)
USHORT: Final = _simple_field("ushort", UShort, UShort, int)
UINT: Final = _simple_field("uint", UInt, UInt, int)
ULONG: Final = _simple_field("ulong", ULong, ULong, int)
STRING: Final = _simple_field("string", str, str)
SYMBOL_FIELD: Final = _simple_field("symbol", Symbol, Symbol)
SYMBOLS: Final = CompositeField("symbols", _symbols, _encode_symbols)
BINARY: Final = _simple_field("binary", bytes, bytes)
MAP: Final = _simple_field("map", dict, _same)
ANY: Final = CompositeField("any", _same, _same)


class CompositeType:
    __slots__ = ("_defaults", "_fields", "_least", "code", "make", "symbol")

    def __init__(
        self, code: int, symbol: str, make: type[Any], kinds: tuple[CompositeField, ...]
    ) -> None:
        self.code = code
        self.symbol = symbol
        self.make = make
        declared = fields(make)
        assert len(declared) == len(kinds), symbol
        self._fields = [(one.name, kind) for one, kind in zip(declared, kinds, strict=True)]
        self._defaults = [one.default for one in declared]
        mandatory = [index for index, one in enumerate(declared, 1) if one.default is MISSING]
        self._least = max(mandatory, default=0)

    def read(self, values: Any) -> Any:
        """The value of a decoded list."""
        if not isinstance(values, list):
            raise DecodeError(f"{self.symbol} should be a list")
        if len(values) > len(self._fields) or len(values) < self._least:
            raise DecodeError(f"{self.symbol} with {len(values)} fields")
        arguments: dict[str, Any] = {}
        for (name, kind), default, value in zip(self._fields, self._defaults, values, strict=False):
            if value is None:
                if default is MISSING:
                    raise DecodeError(f"{self.symbol} without its {name.replace('_', '-')}")
                continue
            try:
                arguments[name] = kind.read(value)
            except TypeError:
                field = name.replace("_", "-")
                raise DecodeError(f"{self.symbol}: {field} should be {kind.name}") from None
        return self.make(**arguments)

    def described(self, value: Any) -> Described:
        """The value to encode; fields at their defaults are omitted."""
        values: list[Any] = []
        for (name, kind), default in zip(self._fields, self._defaults, strict=True):
            field = getattr(value, name)
            values.append(None if field is None or field == default else kind.write(field))
        while values and values[-1] is None:
            values.pop()
        return Described(ULong(self.code), values)

    def encode(self, value: Any) -> bytes:
        return encode(self.described(value))


class CompositeTypes:
    """Alternative types, found by descriptor and by class."""

    __slots__ = ("_by_class", "_by_descriptor")

    def __init__(self, composites: Iterable[CompositeType]) -> None:
        self._by_descriptor: dict[Any, CompositeType] = {}
        self._by_class: dict[type[Any], CompositeType] = {}
        for composite in composites:
            self._by_descriptor[composite.code] = composite
            self._by_descriptor[composite.symbol] = composite
            self._by_class[composite.make] = composite

    def find(self, descriptor: Any) -> CompositeType | None:
        if isinstance(descriptor, int | str) and not isinstance(descriptor, bool):
            return self._by_descriptor.get(descriptor)
        return None

    def read(self, value: Any) -> Any:
        """The value of a described list; raises `TypeError` for an unknown descriptor."""
        composite = self.find(value.descriptor) if isinstance(value, Described) else None
        if composite is None:
            raise TypeError
        return composite.read(value.value)

    def described(self, value: Any) -> Described:
        return self._by_class[type(value)].described(value)

    def encode(self, value: Any) -> bytes:
        return encode(self.described(value))

    def kind(self, name: str, *, others: bool = False) -> CompositeField:
        """A field of one of these types; with `others`, or of any described value, unchanged."""

        def read(value: Any) -> Any:
            if others and isinstance(value, Described) and self.find(value.descriptor) is None:
                return value
            return self.read(value)

        def write(value: Any) -> Any:
            return value if isinstance(value, Described) else self.described(value)

        return CompositeField(name, read, write)
