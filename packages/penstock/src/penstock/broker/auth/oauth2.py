"""Access tokens as passwords: JWTs that an OAuth 2 or OpenID Connect issuer signs.

A token is verified with the issuer's public keys. Only asymmetric algorithms are accepted, and only
with a key of their type, so neither an unsigned token nor one that is signed with a public key as a
shared secret passes. The user exists in the token only: its name, tags and permissions are claims.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.auth.jwks import Fetch, JsonWebKeySet, fetch_json
from penstock.broker.auth.scopes import ScopePermissions, ScopeTopicPermissions, parse_scopes
from penstock.broker.user import User
from penstock.core.errors import AuthenticationFailed, ConfigurationError

if TYPE_CHECKING:
    from penstock.core.config import OAuth2Settings

#: The type of key that an algorithm needs, by the start of its name.
_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
MAX_TOKEN_BYTES: Final = 64 * 1024
MAX_NAME_BYTES: Final = 255


class OAuth2Backend:
    name = "oauth2"

    def __init__(
        self,
        settings: OAuth2Settings,
        *,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        try:
            import jwt
            import jwt.algorithms
        except ImportError:
            raise ConfigurationError(
                "broker.auth_backends: oauth2 needs the extra: pip install 'penstock[oauth2]'"
            ) from None
        if not jwt.algorithms.has_crypto:
            raise ConfigurationError(
                "broker.auth_backends: oauth2 needs cryptography: pip install 'penstock[oauth2]'"
            )
        self._jwt = jwt
        self._settings = settings
        self._clock = clock
        self._keys = JsonWebKeySet(
            issuer=settings.issuer,
            url=settings.jwks_url,
            lifetime=settings.keys_lifetime,
            fetch=fetch or partial(fetch_json, authority=settings.authority),
        )

    async def authenticate(self, name: str, password: bytes, *, address: str) -> User:
        """The user that the token describes; `name` has no meaning, as in RabbitMQ."""
        if password.count(b".") != 2 or len(password) > MAX_TOKEN_BYTES:
            raise AuthenticationFailed("the password is not a token")
        claims = await self._verify(password)
        return self._user(claims)

    async def _verify(self, token: bytes) -> dict[str, Any]:
        jwt, settings = self._jwt, self._settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in settings.algorithms:
                raise AuthenticationFailed(f"tokens signed with {algorithm!r} are not accepted")
            key_id = header.get("kid")
            key = await self._keys.find(key_id, _KEY_TYPES[algorithm[:2]])
            if key.get("alg", algorithm) != algorithm:
                raise AuthenticationFailed(f"key {key_id!r} is not for {algorithm}")
            claims: dict[str, Any] = jwt.decode(
                token,
                jwt.PyJWK.from_dict(key, algorithm).key,
                algorithms=[algorithm],
                issuer=settings.issuer or None,
                leeway=settings.clock_skew,
                options={
                    "require": ["exp"],
                    "verify_aud": False,  # below: RabbitMQ also accepts a text with blanks
                    "verify_sub": False,
                },
            )
        except (jwt.PyJWTError, ArithmeticError, TypeError) as error:  # numbers out of range, too
            raise AuthenticationFailed(f"invalid token: {error}") from None
        self._check_audience(claims.get("aud"))
        return claims

    def _check_audience(self, audience: Any) -> None:
        if not self._settings.verify_audience:
            return
        expected = self._settings.resource_server_id
        if expected not in _words(audience):
            raise AuthenticationFailed(f"the audience of the token is not {expected!r}")

    def _user(self, claims: dict[str, Any]) -> User:
        settings = self._settings
        values = [_claim(claims, claim) for claim in settings.username_claims]
        names = [value for value in values if isinstance(value, str) and value]
        name = names[0] if names else ""
        if not name or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            tried = ", ".join(settings.username_claims)
            raise AuthenticationFailed(f"the token has no user name in the claims {tried}")
        granted, tags = parse_scopes(self._scopes(claims))
        return User(
            name,
            tags=tags,
            permissions=ScopePermissions(granted),
            topic_permissions=ScopeTopicPermissions(granted),
            origin=self.name,
            expires=float(claims["exp"]) + settings.clock_skew,
        )

    def _scopes(self, claims: dict[str, Any]) -> Iterable[str]:
        """Scopes of this broker, without their prefix."""
        settings = self._settings
        prefix = settings.scope_prefix
        if prefix is None:
            prefix = f"{settings.resource_server_id}."
        for claim in settings.scope_claims:
            found = _claim(claims, claim)
            if isinstance(found, dict):  # by resource server
                found = found.get(settings.resource_server_id)
            for scope in _words(found):
                for each in settings.scope_aliases.get(scope, [scope]):
                    if each.startswith(prefix):
                        yield each.removeprefix(prefix)


def _claim(claims: dict[str, Any], path: str) -> Any:
    """A claim by its name, or by the path to it in nested objects: `realm_access.roles`."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _words(value: Any) -> list[str]:
    """A list of texts, or a text with blanks between them."""
    if isinstance(value, str):
        return value.split()
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
