"""Values as JSON: dataclasses by their fields, moments in UTC with a Z, decimals as text."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

from penstock_hives.errors import IfMatchFailed


def encode_json(value: Any) -> bytes:
    return to_json(value)


def format_timestamp(at: datetime) -> str:
    """As `encode_json` writes it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


# Entity tags: what a value was when somebody saw it, in few letters.


def etag_of(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def check_if_match(value: Any, seen: str | None) -> None:
    """That a value still is what the caller has seen; they need not say."""
    if seen is None or seen.strip() == "*":
        return
    tags = [each.strip() for each in seen.split(",")]
    if etag_of(to_json(value)) not in tags:
        raise IfMatchFailed("it was changed meanwhile: read it again, then decide")
