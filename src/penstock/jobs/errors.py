"""What can go wrong with jobs."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class FormError(PenstockError):
    """A message is not a request or response, and this is where."""
