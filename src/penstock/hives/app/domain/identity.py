"""Who vouches for people. The application knows them by an identifier and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose token it was."""

    uid: str
    claims: Mapping[str, Any] = field(default_factory=dict)


class Identify(Protocol):
    async def verify(self, token: str) -> Identity:
        """Raises `AuthenticationFailed` for a token that does not hold."""
