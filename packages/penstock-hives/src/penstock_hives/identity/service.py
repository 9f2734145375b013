"""The local issuer's users: sign-up, sign-in, refresh, sign-out, new password, new address.

An ID token lasts an hour and cannot be revoked. A refresh token is valid once: its use returns a
new one. A second use means that it was stolen, so all refresh tokens of the user are revoked; a new
password revokes them, too. The dashboards use a refresh token as session (`user_of_session`).

Passwords are argon2id hashes, checked in threads, fairly by client address (`core/passwords.py`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Final

import httpx

from penstock.core.errors import AuthenticationFailed, NotFound
from penstock.core.logs import get_logger
from penstock.core.passwords import PasswordVerifier
from penstock_hives.database import DatabasePool
from penstock_hives.demo_data import DEMO_UIDS
from penstock_hives.errors import (
    NotConfigured,
    RequestConflict,
    TooManyRequests,
    invalid_field,
)
from penstock_hives.identity.issuer import LocalIssuer, SigningKeys
from penstock_hives.identity.jwks import JwksKeySet, key_set_fetcher
from penstock_hives.identity.mail import (
    MailSender,
    confirm_login_mail,
    login_changed_mail,
    open_mail_sender,
    password_reset_mail,
)
from penstock_hives.identity.repository import (
    MAIL_EVERY,
    CredentialRepository,
    LocalCredential,
    RefreshToken,
    SignInAttempts,
    digest,
)
from penstock_hives.identity.settings import IdentitySettings, check_identity_settings
from penstock_hives.identity.tokens import Identity, TokenVerifier

log = get_logger(__name__)

REFRESH_LIFE: Final = timedelta(days=30)
RESET_LIFE: Final = timedelta(hours=1)
#: Separators of addresses in mail headers (RFC 5322).
_SEPARATORS: Final = frozenset('(),:;<>[]\\"')
_WRONG: Final = "the login or the password is wrong"
_ENDED: Final = "the refresh token is invalid or has expired: sign in"
_LINK_ENDED: Final = "the link is invalid or has expired: request another"
MIN_PASSWORD_LENGTH: Final = 10
MAX_PASSWORD_LENGTH: Final = 256


@dataclass(frozen=True, slots=True)
class SignInSession:
    id_token: str
    refresh_token: str
    expires_in: int  #: seconds, of the ID token
    uid: str


class SignInService:
    def __init__(
        self,
        pool: DatabasePool,
        issuer: LocalIssuer,
        passwords: PasswordVerifier,
        mail: MailSender,
        *,
        reset_link: str,
        confirm_link: str,
        sender: str,
        refused: Collection[str] = (),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`refused` are uids that cannot sign in."""
        self._pool = pool
        self._issuer = issuer
        self._passwords = passwords
        self._mail = mail
        self._reset_link = reset_link
        self._confirm_link = confirm_link
        self._sender = sender
        self._refused = refused
        self._clock = clock

    async def sign_up(self, login: str, password: str) -> SignInSession:
        login = normalize_login(login)
        check_password(login, password)
        credential = LocalCredential(
            f"l{secrets.token_urlsafe(20)}",
            login,
            await asyncio.to_thread(self._passwords.hash, password),
        )
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            if not await credentials.add(credential):
                raise RequestConflict("this login exists already")
            return await self._session(credentials, credential.uid, self._clock())

    async def sign_in(self, login: str, password: str, address: str) -> SignInSession:
        """`address` is the client's, for a fair share of password checks."""
        login = normalize_login(login)
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).begin(login, self._clock())
            credential = await CredentialRepository(connection).find(login)
        if credential is not None and credential.uid in self._refused:
            credential = None
        stored = credential.password_hash if credential is not None else None
        if not await self._passwords.check(stored, password, address) or credential is None:
            raise AuthenticationFailed(_WRONG)
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).clear(login)
            return await self._session(
                CredentialRepository(connection), credential.uid, self._clock()
            )

    async def user_of_session(self, token: str) -> str:
        """The uid of a valid refresh token."""
        async with self._pool.reading() as connection:
            found = await CredentialRepository(connection).refresh(digest(token), lock=False)
        if found is None or found.revoked_at is not None or not self._is_valid(found):
            raise AuthenticationFailed(_ENDED)
        return found.uid

    async def refresh(self, token: str) -> SignInSession:
        now = self._clock()
        stolen = None
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            found = await credentials.refresh(digest(token))
            if found is None or not self._is_valid(found):
                raise AuthenticationFailed(_ENDED)
            if found.revoked_at is None:
                await credentials.revoke(digest(token), now)
                return await self._session(credentials, found.uid, found.signed_in_at)
            # Committed before the error is raised.
            await credentials.revoke_all(found.uid, now)
            stolen = found.uid
        log.warning("refresh token used twice", uid=stolen)
        raise AuthenticationFailed("the refresh token was used before: sign in")

    async def sign_out(self, token: str) -> None:
        async with self._pool.transaction() as connection:
            await CredentialRepository(connection).revoke(digest(token), self._clock())

    async def request_reset(self, login: str) -> None:
        """Does not reveal whether the login exists."""
        login = normalize_login(login)
        token = secrets.token_urlsafe(32)
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            until = self._clock() + RESET_LIFE
            known = await credentials.expect_reset(login, digest(token), until)
            locale = await credentials.locale(login)
        if known:
            link = f"{self._reset_link}{token}"
            await self._send(password_reset_mail(self._sender, login, link, locale))

    async def reset(self, token: str, password: str) -> None:
        now = self._clock()
        async with self._pool.reading() as connection:
            login = await CredentialRepository(connection).resetting(digest(token), now)
        if login is None:
            raise AuthenticationFailed(_LINK_ENDED)
        check_password(login, password)
        hashed = await asyncio.to_thread(self._passwords.hash, password)
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            credential = await credentials.reset(digest(token), hashed, now)
            if credential is None:
                raise AuthenticationFailed(_LINK_ENDED)
            await credentials.revoke_all(credential.uid, now)
            await SignInAttempts(connection).clear(login)

    async def login(self, uid: str) -> str:
        return (await self._credential(uid)).login

    async def change_password(
        self, uid: str, password: str, new: str, address: str
    ) -> SignInSession:
        """A new session; all others end."""
        credential = await self._confirmed(uid, password, address)
        check_password(credential.login, new, "new_password")
        hashed = await asyncio.to_thread(self._passwords.hash, new)
        now = self._clock()
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            await credentials.set_password(uid, hashed)
            await credentials.revoke_all(uid, now)
            return await self._session(credentials, uid, now)

    async def request_login(self, uid: str, login: str, password: str, address: str) -> None:
        """Send a link to the new address. The response does not reveal whether it is taken."""
        login = normalize_login(login)
        confirmed = await self._confirmed(uid, password, address)
        token = secrets.token_urlsafe(32)
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            locale = await credentials.locale(confirmed.login)
            if await credentials.find(login) is not None:
                return
            until = self._clock() + RESET_LIFE
            if not await credentials.expect_login(uid, login, digest(token), until):
                raise TooManyRequests(
                    "a link was sent just now: try again in a minute", MAIL_EVERY.total_seconds()
                )
        link = f"{self._confirm_link}{token}"
        await self._send(confirm_login_mail(self._sender, login, link, locale))

    async def confirm_login(self, token: str) -> None:
        """The old address is told."""
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            changed = await credentials.confirm_login(digest(token), self._clock())
            if changed is None:
                raise AuthenticationFailed(_LINK_ENDED)
            old, login = changed
            locale = await credentials.locale(login)
        await self._send(login_changed_mail(self._sender, old, login, locale))

    async def _credential(self, uid: str) -> LocalCredential:
        async with self._pool.reading() as connection:
            found = await CredentialRepository(connection).of_uid(uid)
        if found is None:
            raise NotFound("you have no password here")
        return found

    async def _confirmed(self, uid: str, password: str, address: str) -> LocalCredential:
        """The credential, if the password is right; attempts are limited as for a sign-in."""
        credential = await self._credential(uid)
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).begin(credential.login, self._clock())
        if not await self._passwords.check(credential.password_hash, password, address):
            raise invalid_field("password", "is wrong")
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).clear(credential.login)
        return credential

    async def _send(self, message: EmailMessage) -> None:
        try:
            await self._mail.send(message)
        except OSError as error:  # SMTPException is an OSError
            log.error("mail not sent", reason=str(error))

    def _is_valid(self, refresh: RefreshToken) -> bool:
        return refresh.expires_at > self._clock() and refresh.uid not in self._refused

    async def _session(
        self, credentials: CredentialRepository, uid: str, since: datetime
    ) -> SignInSession:
        issued = self._issuer.issue(uid, since.timestamp())
        refresh = secrets.token_urlsafe(32)
        now = self._clock()
        await credentials.delete_expired(uid, now)
        await credentials.add_refresh(
            digest(refresh), RefreshToken(uid, now + REFRESH_LIFE, None, since)
        )
        return SignInSession(issued.token, refresh, issued.expires_in, uid)


def normalize_login(login: str) -> str:
    """One e-mail address, in lower case."""
    login = login.strip().lower()
    name, at, domain = login.partition("@")
    valid = (
        name
        and at
        and domain
        and "@" not in domain
        and not _SEPARATORS & set(login)
        and not any(character.isspace() for character in login)
        and len(login) <= 254
        and login.isprintable()
    )
    if not valid:
        raise invalid_field("login", "must be an e-mail address")
    return login


def check_password(login: str, password: str, field: str = "password") -> None:
    reason = None
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        reason = f"must have {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters"
    elif password.lower() in (login, login.partition("@")[0]):
        reason = "must not be the login"
    elif len(set(password)) < 5:
        reason = "must have at least five different characters"
    if reason is not None:
        raise invalid_field(field, reason)


class LocalIdentity:
    """The `IdentityVerifier` of the local issuer."""

    def __init__(
        self,
        settings: IdentitySettings,
        issuer: LocalIssuer,
        *,
        production: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.issuer = issuer
        self._settings = settings
        self._verifier = issuer.verifier()
        self._passwords = PasswordVerifier()
        self._refused = DEMO_UIDS if production else ()
        self._clock = clock
        self._mail = open_mail_sender(settings)

    async def verify(self, token: str) -> Identity:
        return await self._verifier.verify(token)

    def sign_in(self, pool: DatabasePool) -> SignInService:
        return SignInService(
            pool,
            self.issuer,
            self._passwords,
            self._mail,
            reset_link=self._settings.reset_link,
            confirm_link=self._settings.confirm_link,
            sender=self._settings.sender,
            refused=self._refused,
            clock=self._clock,
        )


def require_local_identity(identify: object) -> LocalIdentity:
    if not isinstance(identify, LocalIdentity):
        raise NotConfigured("this installation uses Firebase: sign in there")
    return identify


@asynccontextmanager
async def open_identity(
    settings: IdentitySettings, *, production: bool, environment: Mapping[str, str]
) -> AsyncIterator[TokenVerifier | LocalIdentity]:
    check_identity_settings(settings, production, environment)
    if settings.issuer == "local":
        keys = SigningKeys(settings.folder)
        await asyncio.to_thread(keys.open)
        issuer = LocalIssuer(settings.issuer_name, settings.project, keys)
        yield LocalIdentity(settings, issuer, production=production)
        return
    async with httpx.AsyncClient() as client:
        published = JwksKeySet(key_set_fetcher(client, settings.keys))
        yield TokenVerifier(settings.issuer_name, settings.project, published)
