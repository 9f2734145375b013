"""The local issuer: signs the ID tokens that Firebase would.

Same claims, same algorithm, same life of an hour, with keys from `signing.py`. A verifier is told
apart from Firebase's by its issuer and keys alone, so what is tested here is what runs there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import jwt

from penstock.hives.app.identity.signing import SigningKeys
from penstock.hives.app.identity.tokens import ALGORITHM, TokenVerifier

LIFE_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class Issued:
    token: str
    expires_in: int  #: seconds


class LocalIssuer:
    """Signs for one audience, under one name."""

    def __init__(
        self,
        name: str,
        audience: str,
        keys: SigningKeys,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.keys = keys
        self._name = name
        self._audience = audience
        self._clock = clock

    def issue(self, uid: str, signed_in_at: float | None = None) -> Issued:
        """A token for somebody who has just proved who they are, or had done so then."""
        now = int(self._clock())
        name, key = self.keys.current
        claims = {
            "iss": self._name,
            "aud": self._audience,
            "sub": uid,
            "user_id": uid,
            "iat": now,
            "exp": now + LIFE_SECONDS,
            "auth_time": now if signed_in_at is None else int(signed_in_at),
            "firebase": {"sign_in_provider": "password"},
        }
        token = jwt.encode(claims, key, algorithm=ALGORITHM, headers={"kid": name})
        return Issued(token, LIFE_SECONDS)

    def verifier(self) -> TokenVerifier:
        return TokenVerifier(self._name, self._audience, self.keys, self._clock)
