"""Decompressing what somebody else has compressed: never to more than the caller has room for."""

from __future__ import annotations

import zlib

from penstock.core.errors import ContentTooLarge


def decompress(data: bytes, most_bytes: int, wbits: int = zlib.MAX_WBITS) -> bytes:
    """As `zlib.decompress`; what becomes larger is `ContentTooLarge` and is not decompressed."""
    inflater = zlib.decompressobj(wbits)
    content = inflater.decompress(data, most_bytes + 1)
    if len(content) > most_bytes:
        raise ContentTooLarge(f"{len(data):,} bytes decompress to more than {most_bytes:,}")
    if not inflater.eof:
        raise zlib.error("the compressed data are incomplete")
    return content
