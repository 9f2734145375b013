"""PostgreSQL's binary COPY format, written from Arrow: columns in, bytes out, no connection."""

from penstock.store.copy.columns import KINDS, Unsendable
from penstock.store.copy.rows import HEADER, TRAILER, encode

__all__ = ["HEADER", "KINDS", "TRAILER", "Unsendable", "encode"]
