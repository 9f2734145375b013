"""Verification of ID tokens (JWT).

Only RS256 and only keys of the configured issuer are accepted; a token selects nothing but the id
of a published key. So unsigned tokens, tokens signed with a public key as HMAC secret, and tokens
with an embedded key are refused. Issuer, audience, subject and times are checked, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from penstock.core.errors import AuthenticationFailed

ALGORITHM: Final = "RS256"
#: Firebase tokens have about a thousand characters.
MAX_LENGTH: Final = 8192
MAX_SUBJECT: Final = 128
#: Tolerated difference of clocks.
LEEWAY_SECONDS: Final = 10.0
_REQUIRED: Final = ("iss", "aud", "sub", "iat", "exp")
#: Times are checked below, by the injected clock.
_OPTIONS: Final = {"require": list(_REQUIRED), "verify_exp": False, "verify_iat": False}


class KeySet(Protocol):
    """The public keys of an issuer, by name."""

    async def key(self, name: str) -> RSAPublicKey | None:
        """None: unknown."""


class TokenVerifier:
    """For one issuer and audience; an `IdentityVerifier`."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        keys: KeySet,
        clock: Callable[[], float] = time.time,
        leeway: float = LEEWAY_SECONDS,
    ) -> None:
        self._issuer = issuer
        self._audience = audience
        self._keys = keys
        self._clock = clock
        self._leeway = leeway

    async def verify(self, token: str) -> Identity:
        name = _key_name(token)
        key = await self._keys.key(name)
        if key is None:
            raise AuthenticationFailed("the token is signed with an unknown key")
        claims = self._claims(token, key)
        return self._identity(claims)

    def _claims(self, token: str, key: RSAPublicKey) -> Mapping[str, Any]:
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                issuer=self._issuer,
                audience=self._audience,
                options=_OPTIONS,  # type: ignore[arg-type]
            )
        except jwt.InvalidAudienceError:
            raise AuthenticationFailed("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise AuthenticationFailed("the token has another issuer") from None
        except jwt.InvalidSignatureError:
            raise AuthenticationFailed("the token's signature is wrong") from None
        except jwt.PyJWTError as error:
            raise AuthenticationFailed(f"invalid token: {error}") from None
        if claims["aud"] != self._audience:  # a list would allow several audiences
            raise AuthenticationFailed("the token has several audiences")
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        now = self._clock()
        expires, issued = _timestamp(claims, "exp"), _timestamp(claims, "iat")
        signed_in = _timestamp(claims, "auth_time") if "auth_time" in claims else issued
        if expires <= now - self._leeway:
            raise AuthenticationFailed("the token has expired: sign in again, or refresh it")
        if max(issued, signed_in) > now + self._leeway:
            raise AuthenticationFailed("the token was issued in the future: check the clocks")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
            raise AuthenticationFailed("the token has no usable subject")
        return Identity(subject, claims)


def _key_name(token: str) -> str:
    """The key id of a token with a valid header."""
    if len(token) > MAX_LENGTH:
        raise AuthenticationFailed(f"a token may have at most {MAX_LENGTH} characters")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise AuthenticationFailed("the bearer token is not a JSON web token") from None
    if header.get("alg") != ALGORITHM:
        raise AuthenticationFailed(f"the token must be signed with {ALGORITHM}")
    name = header.get("kid")
    if not isinstance(name, str) or not name:
        raise AuthenticationFailed("the token has no key id")
    return name


def _timestamp(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    # Up to the year 9999.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2.5e11:
        raise AuthenticationFailed(f"the token's {name} is not a timestamp")
    return float(value)


@dataclass(frozen=True, slots=True)
class Identity:
    uid: str
    claims: Mapping[str, Any] = field(default_factory=dict)


class IdentityVerifier(Protocol):
    async def verify(self, token: str) -> Identity:
        """Raises `AuthenticationFailed`."""
