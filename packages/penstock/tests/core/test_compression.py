"""What others compressed is decompressed up to a limit."""

from __future__ import annotations

import gzip
import zlib

import pytest

from penstock.core.compression import decompress
from penstock.core.errors import ContentTooLarge


def test_what_has_room_is_decompressed() -> None:
    assert decompress(zlib.compress(b"x" * 1000), 1000) == b"x" * 1000
    assert decompress(gzip.compress(b"water"), 5, zlib.MAX_WBITS | 16) == b"water"


def test_what_would_become_larger_is_refused() -> None:
    with pytest.raises(ContentTooLarge, match="more than 999"):
        decompress(zlib.compress(b"x" * 1000), 999)


def test_what_ends_early_is_an_error() -> None:
    with pytest.raises(zlib.error, match="incomplete"):
        decompress(zlib.compress(b"x" * 1000)[:-5], 1000)
