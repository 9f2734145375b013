"""ID tokens: from the text of a bearer token to the identity it proves, or a refusal that says why.

One algorithm, RS256, and only keys of the issuer we chose: nothing a token says about itself picks
an algorithm, a key or a place to get one from, beyond the name of a key the issuer has published.
So tokens that are unsigned, signed with a public key taken for a secret, or carry a key along,
meet a closed door. Issuer, audience, subject and times are checked here too, by a clock that is
passed in.
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
#: Tokens of Firebase have about a thousand characters. Nobody parses a megabyte for a stranger.
MAX_LENGTH: Final = 8192
#: Firebase's subjects have up to 128 characters.
MAX_SUBJECT: Final = 128
#: Clocks differ, by seconds.
LEEWAY_SECONDS: Final = 10.0
_REQUIRED: Final = ("iss", "aud", "sub", "iat", "exp")
#: Times are checked below, by our own clock.
_OPTIONS: Final = {"require": list(_REQUIRED), "verify_exp": False, "verify_iat": False}


class KeySet(Protocol):
    """The public keys of an issuer, by name."""

    async def key(self, name: str) -> RSAPublicKey | None:
        """None, if the issuer has no such key."""


class TokenVerifier:
    """Checks the tokens of one issuer that are meant for one audience; keeps `Identify`."""

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
            raise AuthenticationFailed("the token is signed with a key its issuer does not have")
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
            raise AuthenticationFailed("the token is of another issuer") from None
        except jwt.InvalidSignatureError:
            raise AuthenticationFailed("the token's signature is wrong") from None
        except jwt.PyJWTError as error:
            raise AuthenticationFailed(f"the token cannot be used: {error}") from None
        if claims["aud"] != self._audience:  # a list would let one token serve several
            raise AuthenticationFailed("the token is for several audiences")
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        now = self._clock()
        expires, issued = _moment(claims, "exp"), _moment(claims, "iat")
        signed_in = _moment(claims, "auth_time") if "auth_time" in claims else issued
        if expires <= now - self._leeway:
            raise AuthenticationFailed("the token has expired: sign in again, or refresh it")
        if max(issued, signed_in) > now + self._leeway:
            raise AuthenticationFailed("the token is from the future: is a clock wrong?")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
            raise AuthenticationFailed("the token has no usable subject")
        return Identity(subject, claims)


def _key_name(token: str) -> str:
    """The key a token says it is signed with; whatever else is plainly wrong is refused first."""
    if len(token) > MAX_LENGTH:
        raise AuthenticationFailed(f"a token has at most {MAX_LENGTH} characters")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise AuthenticationFailed("the bearer token is no JSON web token") from None
    if header.get("alg") != ALGORITHM:
        raise AuthenticationFailed(f"tokens are signed with {ALGORITHM}, this one is not")
    name = header.get("kid")
    if not isinstance(name, str) or not name:
        raise AuthenticationFailed("the token does not name the key it is signed with")
    return name


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    # Up to the year 9999, beyond which there are no dates.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2.5e11:
        raise AuthenticationFailed(f"the token's {name} is no time")
    return float(value)


# Who vouches for people. The application knows them by an identifier and nothing else.


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose token it was."""

    uid: str
    claims: Mapping[str, Any] = field(default_factory=dict)


class IdentityVerifier(Protocol):
    async def verify(self, token: str) -> Identity:
        """Raises `AuthenticationFailed` for a token that does not hold."""
