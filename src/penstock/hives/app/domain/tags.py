"""Entity tags: what a value was when somebody saw it, in few letters."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic_core import to_json

from penstock.hives.app.domain.errors import Stale


def tag_of(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def unchanged(value: Any, seen: str | None) -> None:
    """That a value still is what the caller has seen; they need not say."""
    if seen is None or seen.strip() == "*":
        return
    tags = [each.strip() for each in seen.split(",")]
    if tag_of(to_json(value)) not in tags:
        raise Stale("it was changed meanwhile: read it again, then decide")
