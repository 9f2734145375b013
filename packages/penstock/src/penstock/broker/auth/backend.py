"""The interface of authentication backends, and the chain that asks one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.user import User
from penstock.core.errors import AuthenticationFailed

if TYPE_CHECKING:
    from penstock.core.config import BrokerSettings


class AuthBackend(Protocol):
    name: str

    async def authenticate(self, name: str, password: bytes, *, address: str) -> User:
        """Raises `AuthenticationFailed`; `address` is the peer's."""


def open_auth_backends(settings: BrokerSettings, internal: AuthBackend) -> list[AuthBackend]:
    """The backends of the setting `auth_backends`, in order."""
    backends: list[AuthBackend] = []
    for name in settings.auth_backends:
        if name == "oauth2":
            from penstock.broker.auth.oauth2 import OAuth2Backend

            backends.append(OAuth2Backend(settings.oauth2))
        elif name == "ldap":
            from penstock.broker.auth.ldap import LdapBackend

            backends.append(LdapBackend(settings.ldap))
        else:
            backends.append(internal)
    return backends


class AuthChain:
    """Asks backends in order; the first that accepts a login decides."""

    def __init__(self, backends: list[AuthBackend]) -> None:
        self.backends = backends

    async def authenticate(self, name: str, password: bytes, *, address: str) -> User:
        reasons = []
        for backend in self.backends:
            try:
                return await backend.authenticate(name, password, address=address)
            except AuthenticationFailed as error:
                reasons.append(f"{backend.name}: {error}" if len(self.backends) > 1 else str(error))
        raise AuthenticationFailed("; ".join(reasons))
