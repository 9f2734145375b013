"""What can go wrong between streams and Spark, and nowhere else."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class DataLost(PenstockError):
    """Messages that were to be read are gone; says which, the likely reason and what to do."""
