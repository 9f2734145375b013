"""A Parquet table from an untrusted sender: every page is checked before any page is decoded.

A few bytes of Parquet can stand for any number of values: by the codec, by a dictionary, by run
lengths, by strings that repeat their predecessors. The footer that announces sizes is the sender's,
too, so the headers of the pages are read here (Thrift's compact protocol) and everything Arrow
would allocate is added up first. Codecs and encodings that can multiply beyond that are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.units import MiB
from penstock.jobs.errors import FormError

ROWS: Final = 100_000
#: Of all pages together, decompressed.
PAGE_BYTES: Final = 32 * MiB
_CHUNKS: Final = 256  #: columns x row groups
_FOOTER_TEXT: Final = 64 * 1024
_FOOTER_ITEMS: Final = 1_000

#: At most some twenty bytes for one; gzip has a thousand, Brotli and Zstandard many thousands.
_CODECS: Final = ("SNAPPY", "UNCOMPRESSED")
_TYPES: Final = ("DOUBLE", "BYTE_ARRAY")
#: PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY.
_ENCODINGS: Final = (0, 2, 8)
#: Fields of a page header, and of the three headers one of which is in it.
_DECOMPRESSED, _COMPRESSED = 2, 3
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8
_COUNT: Final = 1
_ENCODING: Final = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_DEPTH: Final = 8


def read_table(data: bytes, texts: Sequence[str]) -> pa.Table:
    """The columns `texts` come as dictionaries: a long string in many rows is there once."""
    with pq.ParquetFile(
        pa.BufferReader(data),
        read_dictionary=list(texts),
        thrift_string_size_limit=_FOOTER_TEXT,
        thrift_container_size_limit=_FOOTER_ITEMS,
    ) as file:
        _check(data, file.metadata)
        return file.read(use_threads=False)


def _check(data: bytes, footer: pq.FileMetaData) -> None:
    if footer.num_rows > ROWS:
        raise FormError(f"the table has {footer.num_rows:,} rows; at most {ROWS:,} are accepted")
    if footer.num_columns * footer.num_row_groups > _CHUNKS:
        raise FormError(f"the table is in more than {_CHUNKS} column chunks")
    if not (footer.created_by or "").startswith("parquet-cpp"):
        raise FormError(f"the table was written by {footer.created_by!r}, not by Arrow")
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(footer.num_columns)]
    left = PAGE_BYTES
    for chunk in chunks:
        if chunk.compression not in _CODECS or chunk.physical_type not in _TYPES:
            kind = f"{chunk.physical_type} in {chunk.compression}"
            raise FormError(f"column {chunk.path_in_schema!r} is {kind}, which is not accepted")
        begin = chunk.data_page_offset
        if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
            begin = chunk.dictionary_page_offset
        for count, size in _pages(data, begin, begin + chunk.total_compressed_size):
            left -= size
            if not 0 <= count <= ROWS or left < 0:
                name = chunk.path_in_schema
                raise FormError(f"column {name!r}: {count:,} values in {size:,} bytes are too many")


def _pages(data: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """How many values each page has, and its size when it is decompressed."""
    if not 0 <= at <= end <= len(data):
        raise FormError("the table has pages outside the file")
    while at < end:
        header, at = _struct(data, at)
        compressed, size = header.get(_COMPRESSED, -1), header.get(_DECOMPRESSED, -1)
        kinds = [kind for kind in _ENCODING if kind in header]
        if compressed < 0 or size < 0 or len(kinds) != 1:
            raise FormError(f"the table has a page that cannot be read, before byte {at:,}")
        page = header[kinds[0]]
        if page.get(_ENCODING[kinds[0]]) not in _ENCODINGS:
            raise FormError("the table has a page in an encoding that is not accepted")
        yield page.get(_COUNT, -1), size
        at += compressed
    if at != end:
        raise FormError("the table has a page that is longer than its column")


def _struct(data: bytes, at: int, depth: int = _DEPTH) -> tuple[dict[int, Any], int]:
    """Field number → value. Who has a field twice may mean two readers to see two values."""
    found: dict[int, Any] = {}
    number = 0
    while byte := data[at]:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _integer(data, at)
        if number in found or not depth:
            raise FormError("the table has a page header that is ambiguous")
        found[number], at = _value(data, at, byte & 0x0F, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # the kind is the value: true, false
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 8:  # bytes, of which nothing is needed
        size, at = _varint(data, at)
        return None, at + size
    if kind == 12:
        return _struct(data, at, depth - 1)
    raise FormError(f"the table has a page header with a value of kind {kind}")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise FormError("the table has a page header with a number that has no end")
