"""Values as JSON (dataclasses by field, timestamps in UTC with a Z, decimals as text) and ETags."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

from pydantic_core import to_json

from penstock_hives.errors import IfMatchFailed


def encode_json(value: Any) -> bytes:
    return to_json(value)


def format_timestamp(at: datetime) -> str:
    """As `encode_json` writes it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def from_unix(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def local_midnight(day: date, zone: ZoneInfo) -> datetime:
    """The start of a local day, in UTC."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def etag_of(body: bytes) -> str:
    """A digest of the body, so all workers compute the same tag."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def check_if_match(value: Any, if_match: str | None) -> None:
    if if_match is None or if_match.strip() == "*":
        return
    tags = [tag.strip() for tag in if_match.split(",")]
    if etag_of(to_json(value)) not in tags:
        raise IfMatchFailed("the resource has changed: read it again and repeat the change")
