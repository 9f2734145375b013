"""Decompression of untrusted data, with a limit on the result."""

from __future__ import annotations

import zlib

from penstock.core.errors import ContentTooLarge


def decompress(data: bytes, most_bytes: int, wbits: int = zlib.MAX_WBITS) -> bytes:
    """As `zlib.decompress`; raises `ContentTooLarge` beyond `most_bytes`, without decompressing
    more."""
    inflater = zlib.decompressobj(wbits)
    content = inflater.decompress(data, most_bytes + 1)
    if len(content) > most_bytes:
        raise ContentTooLarge(f"{len(data):,} bytes decompress to more than {most_bytes:,}")
    if not inflater.eof:
        raise zlib.error("compressed data is incomplete")
    return content
