"""What can go wrong between streams and Spark, and nowhere else."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class StreamListUnavailable(PenstockError, ConnectionError):
    """Streams are to be found by a pattern, and what could list them does not answer just now."""


class DataLost(PenstockError):
    """Messages that were to be read are gone; says which, the likely reason and what to do."""
