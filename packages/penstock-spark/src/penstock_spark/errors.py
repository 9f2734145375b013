"""Errors of the connector."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class StreamListUnavailable(PenstockError, ConnectionError):
    """The management API, which a pattern of streams needs, does not answer."""


class DataLost(PenstockError):
    """Messages were removed before they were read."""
