"""The bytes of AMQP 1.0's types, both ways.

`decode` reads one value, constructor and all, and says where it ends; `encode` writes one, in its
smallest form; `skip` finds where a value ends without reading it. Whatever the bytes, decoding
succeeds or raises `DecodeError`, in time and memory in proportion to them.
"""

from __future__ import annotations

from penstock.wire.amqp10.decoding import decode, decode_whole, skip
from penstock.wire.amqp10.encoding import encode

__all__ = ["decode", "decode_whole", "encode", "skip"]
