"""Values as JSON: dataclasses by their fields, moments in UTC with a Z, decimals as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json


def encode(value: Any) -> bytes:
    return to_json(value)


def moment(at: datetime) -> str:
    """As `encode` writes it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
