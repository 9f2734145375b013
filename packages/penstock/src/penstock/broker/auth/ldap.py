"""Users of an LDAP directory.

A login binds to the directory as the user, with the given password. The user's DN follows from a
pattern, or a search as another user finds it. Groups of the directory stand for scopes
(`scopes.py`), which are the user's tags and permissions. Accepted logins are cached for a while, as
keyed digests.

`ldap3` blocks, so logins run in threads, with the rate limits of password checks.
"""

from __future__ import annotations

import hashlib
import math
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.auth.scopes import ScopePermissions, ScopeTopicPermissions, parse_scopes
from penstock.broker.user import User
from penstock.core.errors import AuthenticationFailed, ConfigurationError
from penstock.core.logs import get_logger
from penstock.core.passwords import PasswordCheckPool

if TYPE_CHECKING:
    from penstock.core.config import LdapSettings

#: Logins at the same time; each waits for the directory.
MAX_CONCURRENT_LOGINS: Final = 8
#: Cached logins, before the cache is cleared.
MAX_CACHED: Final = 16_384
#: The group of all users of the directory.
EVERYBODY: Final = "*"

_log = get_logger("penstock.users")


class LdapBackend:
    name = "ldap"

    def __init__(
        self, settings: LdapSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            import ldap3
            import ldap3.core.exceptions
            import ldap3.utils.conv
            import ldap3.utils.dn
        except ImportError:
            raise ConfigurationError(
                "broker.auth_backends: ldap needs the extra: pip install 'penstock[ldap]'"
            ) from None
        self._ldap3: Any = ldap3
        self._error: type[Exception] = ldap3.core.exceptions.LDAPException
        self._settings = settings
        self._clock = clock
        self._key = os.urandom(32)
        self._cached: dict[bytes, tuple[float, User]] = {}
        self._pool = PasswordCheckPool(concurrent=MAX_CONCURRENT_LOGINS)
        self._servers = [self._server(url) for url in settings.urls]

    def _server(self, url: str) -> Any:
        settings, ldap3 = self._settings, self._ldap3
        authority = str(settings.authority) if settings.authority is not None else None
        tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=authority)
        return ldap3.Server(url, tls=tls, get_info=ldap3.NONE, connect_timeout=settings.timeout)

    async def authenticate(self, name: str, password: bytes, *, address: str) -> User:
        try:
            text = password.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the password is not UTF-8") from None
        # A directory accepts an empty password for any user, as an anonymous bind (RFC 4513).
        if not name or not text or "\0" in name + text:
            raise AuthenticationFailed("a user name and a password are required")
        digest = self._digest(name, password)
        cached = self._cached.get(digest)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        if not await self._pool.run(address, digest, partial(self._login, name, text, digest)):
            raise AuthenticationFailed(f"user '{name}': invalid credentials")
        return self._cached[digest][1]

    def _digest(self, name: str, password: bytes) -> bytes:
        state = hashlib.blake2b(key=self._key, digest_size=32)
        state.update(len(name).to_bytes(4, "big"))
        state.update(name.encode("utf-8", "surrogatepass"))
        state.update(password)
        return state.digest()

    # In threads.

    def _login(self, name: str, password: str, digest: bytes) -> bool:
        try:
            user = self._find(name, password)
        except self._error as error:
            _log.error("LDAP login failed", user=name, error=str(error))
            raise AuthenticationFailed("the LDAP directory is not available") from None
        if user is None:
            return False
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        self._cached[digest] = (self._clock() + self._settings.cache, user)
        return True

    def _find(self, name: str, password: str) -> User | None:
        """None for a wrong name or password."""
        dn = self._user_dn(name)
        if dn is None:
            return None
        with self._connect(dn, password) as connection:
            if connection is None:
                return None
            groups = self._groups(connection, dn, name) if not self._settings.bind_dn else None
        if groups is None:
            groups = self._groups_as_reader(dn, name)
        return self._user(name, groups)

    def _user_dn(self, name: str) -> str | None:
        settings = self._settings
        if settings.user_dn_pattern:
            escaped = self._ldap3.utils.dn.escape_rdn(name)
            return settings.user_dn_pattern.replace("${username}", escaped)
        with self._connect_reader() as connection:
            expression = self._expand(settings.user_filter, username=name)
            entries = self._search(connection, settings.user_base, expression)
        if len(entries) != 1:  # an ambiguous name is nobody's
            return None
        return str(entries[0]["dn"])

    def _groups_as_reader(self, dn: str, name: str) -> list[str]:
        with self._connect_reader() as connection:
            return self._groups(connection, dn, name)

    def _groups(self, connection: Any, dn: str, name: str) -> list[str]:
        """Names of the groups of a user."""
        settings = self._settings
        if not settings.group_base:
            return []
        expression = self._expand(settings.group_filter, user_dn=dn, username=name)
        entries = self._search(
            connection, settings.group_base, expression, settings.group_attribute
        )
        return [
            value
            for entry in entries
            for value in _texts(entry["attributes"].get(settings.group_attribute))
        ]

    def _search(self, connection: Any, base: str, expression: str, *names: str) -> list[Any]:
        connection.search(base, expression, attributes=list(names) or None)
        return [one for one in connection.response or () if one["type"] == "searchResEntry"]

    def _expand(self, expression: str, **values: str) -> str:
        escape = self._ldap3.utils.conv.escape_filter_chars
        for variable, value in values.items():
            expression = expression.replace("${" + variable + "}", escape(value))
        return expression

    def _user(self, name: str, groups: list[str]) -> User:
        known = self._settings.groups
        scopes = [scope for group in (EVERYBODY, *groups) for scope in known.get(group, ())]
        granted, tags = parse_scopes(scopes)
        return User(
            name,
            tags=tags,
            permissions=ScopePermissions(granted),
            topic_permissions=ScopeTopicPermissions(granted),
            origin=self.name,
        )

    @contextmanager
    def _connect_reader(self) -> Iterator[Any]:
        """As the user that may search."""
        settings = self._settings
        with self._connect(settings.bind_dn, settings.bind_password) as connection:
            if connection is None:
                raise self._error(
                    f"the directory refuses {settings.bind_dn!r}, broker.ldap.bind_dn"
                )
            yield connection

    @contextmanager
    def _connect(self, dn: str, password: str) -> Iterator[Any | None]:
        """A bound connection, None if the directory refuses the password."""
        connection = self._open(dn, password)
        try:
            if self._settings.start_tls:
                connection.start_tls()
            yield connection if connection.bind() else None
        finally:
            connection.unbind()

    def _open(self, dn: str, password: str) -> Any:
        """A connection to the first server that answers."""
        ldap3, settings = self._ldap3, self._settings
        failure: Exception | None = None
        for server in self._servers:
            connection = ldap3.Connection(
                server,
                dn or None,
                password or None,
                authentication=ldap3.SIMPLE if dn else ldap3.ANONYMOUS,
                auto_referrals=False,
                read_only=True,
                receive_timeout=math.ceil(settings.timeout),
            )
            try:
                connection.open()
            except self._error as error:
                failure = error
            else:
                return connection
        assert failure is not None
        raise failure


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(one) for one in value or ()]
