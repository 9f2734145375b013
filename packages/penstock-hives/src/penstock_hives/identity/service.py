"""Signing in where there is no Firebase: sign-up, sign-in, refresh, sign-out, password reset.

An ID token lasts an hour and cannot be taken back. What can is the refresh token it is renewed
with, which is good once: using it gives another, and using it again means that two have it, so
then all of that person's are revoked. A new password revokes them, too. The dashboards keep one
as their session, and ask whose it is (`holder`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx
from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from penstock.core.errors import AuthenticationFailed
from penstock.core.logs import get_logger
from penstock_hives.database import DatabasePool
from penstock_hives.demo_data import DEMO_UIDS
from penstock_hives.errors import FieldError, InvalidRequest, NotConfigured, RequestConflict
from penstock_hives.identity.issuer import LocalIssuer, SigningKeys
from penstock_hives.identity.jwks import JwksKeySet, key_set_fetcher
from penstock_hives.identity.mail import (
    FileMailSender,
    MailSender,
    SmtpMailSender,
    password_reset_mail,
)
from penstock_hives.identity.repository import (
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
#: What a letter's header has between addresses or around them (RFC 5322): no part of one here.
_SEPARATORS: Final = frozenset('(),:;<>[]\\"')
_WRONG: Final = "the login or the password is wrong"
_ENDED: Final = "this refresh token does not hold: sign in"


@dataclass(frozen=True, slots=True)
class SignInSession:
    """What somebody gets who has proved who they are."""

    id_token: str
    refresh_token: str
    expires_in: int  #: seconds, of the ID token
    uid: str


class SignInService:
    """The local issuer's desk."""

    def __init__(
        self,
        pool: DatabasePool,
        issuer: LocalIssuer,
        passwords: PasswordHashing,
        letters: MailSender,
        *,
        reset_link: str,
        sender: str,
        refused: Collection[str] = (),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`refused` are the uids that do not sign in here."""
        self._pool = pool
        self._issuer = issuer
        self._passwords = passwords
        self._letters = letters
        self._reset_link = reset_link
        self._sender = sender
        self._refused = refused
        self._clock = clock

    async def sign_up(self, login: str, password: str) -> SignInSession:
        login = normalize_login(login)
        check_password(login, password)
        credential = LocalCredential(
            f"l{secrets.token_urlsafe(20)}", login, await self._passwords.hash(password)
        )
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            if not await credentials.add(credential):
                raise RequestConflict("somebody has signed up with this login already")
            return await self._session(credentials, credential.uid, self._clock())

    async def sign_in(self, login: str, password: str) -> SignInSession:
        login = normalize_login(login)
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).begin(login, self._clock())
            credential = await CredentialRepository(connection).find(login)
        if credential is not None and credential.uid in self._refused:
            credential = None
        stored = credential.password_hash if credential is not None else None
        if not await self._passwords.check(stored, password) or credential is None:
            raise AuthenticationFailed(_WRONG)
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).clear(login)
            return await self._session(
                CredentialRepository(connection), credential.uid, self._clock()
            )

    async def holder(self, token: str) -> str:
        """Whose refresh token it is; raises when it does not hold."""
        async with self._pool.reading() as connection:
            found = await CredentialRepository(connection).refresh(digest(token), lock=False)
        if found is None or found.revoked_at is not None or not self._holds(found):
            raise AuthenticationFailed(_ENDED)
        return found.uid

    async def refresh(self, token: str) -> SignInSession:
        now = self._clock()
        stolen = None
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            found = await credentials.refresh(digest(token))
            if found is None or not self._holds(found):
                raise AuthenticationFailed(_ENDED)
            if found.revoked_at is None:
                await credentials.revoke(digest(token), now)
                return await self._session(credentials, found.uid, found.signed_in_at)
            # Not to be undone by the refusal: it is committed, then raised.
            await credentials.revoke_all(found.uid, now)
            stolen = found.uid
        log.warning("refresh token used twice", uid=stolen)
        raise AuthenticationFailed("this refresh token was used before: sign in")

    async def sign_out(self, token: str) -> None:
        async with self._pool.transaction() as connection:
            await CredentialRepository(connection).revoke(digest(token), self._clock())

    async def ask_reset(self, login: str) -> None:
        """Looks the same whether there is such a login or not."""
        login = normalize_login(login)
        token = secrets.token_urlsafe(32)
        async with self._pool.transaction() as connection:
            known = await CredentialRepository(connection).expect_reset(
                login, digest(token), self._clock() + RESET_LIFE
            )
        if known:
            link = f"{self._reset_link}{token}"
            try:
                await self._letters.send(password_reset_mail(self._sender, login, link))
            except OSError as error:  # whatever a mail server says is one, too
                log.error("letter not sent", reason=str(error))

    async def reset(self, token: str, password: str) -> None:
        now = self._clock()
        async with self._pool.reading() as connection:
            login = await CredentialRepository(connection).resetting(digest(token), now)
        if login is None:
            raise AuthenticationFailed("this link does not hold any more: ask for another")
        check_password(login, password)
        hashed = await self._passwords.hash(password)
        async with self._pool.transaction() as connection:
            credentials = CredentialRepository(connection)
            credential = await credentials.reset(digest(token), hashed, now)
            if credential is None:
                raise AuthenticationFailed("this link does not hold any more: ask for another")
            await credentials.revoke_all(credential.uid, now)
            await SignInAttempts(connection).clear(login)

    def _holds(self, refresh: RefreshToken) -> bool:
        return refresh.expires_at > self._clock() and refresh.uid not in self._refused

    async def _session(
        self, credentials: CredentialRepository, uid: str, since: datetime
    ) -> SignInSession:
        issued = self._issuer.issue(uid, since.timestamp())
        refresh = secrets.token_urlsafe(32)
        now = self._clock()
        await credentials.forget_expired(uid, now)
        await credentials.keep(digest(refresh), RefreshToken(uid, now + REFRESH_LIFE, None, since))
        return SignInSession(issued.token, refresh, issued.expires_in, uid)


def normalize_login(login: str) -> str:
    """A login as it is kept: one address, in small letters."""
    spelled = login.strip().lower()
    if any(letter.isspace() for letter in spelled):
        raise InvalidRequest("no such login", [FieldError("login", "has no blanks")])
    name, at, domain = spelled.partition("@")
    one = name and at and domain and not _SEPARATORS & set(spelled) and "@" not in domain
    if not one or len(spelled) > 254 or not spelled.isprintable():
        raise InvalidRequest("no such login", [FieldError("login", "is an e-mail address")])
    return spelled


# Passwords of the local issuer: argon2id, checked in a thread, few at a time.
#
# A check takes tens of milliseconds and 19 MiB on purpose. Somebody who does not exist is refused
# as slowly as somebody who does. How often a login may fail is `repository.py`'s to say.

MIN_PASSWORD_LENGTH: Final = 10
MAX_PASSWORD_LENGTH: Final = 256
_AT_ONCE: Final = 2


class PasswordHashing:
    """Hashes and checks, for one process."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._nobody: str | None = None

    async def hash(self, password: str) -> str:
        async with self._at_once:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def check(self, stored: str | None, password: str) -> bool:
        """Whether it is the one; nobody's is None, and takes as long."""
        async with self._at_once:
            return await asyncio.to_thread(self._check, stored, password)

    def _check(self, stored: str | None, password: str) -> bool:
        if stored is None:
            if self._nobody is None:
                self._nobody = self._hasher.hash("nobody's password")
            self._matches(self._nobody, password)
            return False
        return self._matches(stored, password)

    def _matches(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (Argon2Error, InvalidHashError):
            return False


def check_password(login: str, password: str) -> None:
    """Raises for a password that would be guessed at once, or is no line of text."""
    reason = None
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        reason = f"has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters"
    elif password.lower() in (login, login.partition("@")[0]):
        reason = "should not be the login"
    elif len(set(password)) < 5:
        reason = "has at least five different characters"
    if reason is not None:
        raise InvalidRequest("this password cannot be used", [FieldError("password", reason)])


# Identity as one: what checks tokens and, with the local issuer, what people sign in with.
#
# async with open_identity(IdentitySettings(), production=False, environment=os.environ) as who:
#     async with open_resources(settings, identify=who) as resources:
#         ...


class LocalIdentity:
    """`Identify` by tokens of our own issuer, which people sign in with here."""

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
        self._passwords = PasswordHashing()
        self._refused = DEMO_UIDS if production else ()
        self._clock = clock
        self._letters: MailSender = (
            FileMailSender(settings.folder / "letters")
            if settings.mail is None
            else SmtpMailSender(
                settings.mail, settings.mail_authority, allow_cleartext=settings.mail_cleartext
            )
        )

    async def verify(self, token: str) -> Identity:
        return await self._verifier.verify(token)

    def sign_in(self, pool: DatabasePool) -> SignInService:
        """The desk, over a pool of connections."""
        return SignInService(
            pool,
            self.issuer,
            self._passwords,
            self._letters,
            reset_link=self._settings.reset_link,
            sender=self._settings.sender,
            refused=self._refused,
            clock=self._clock,
        )


def require_local_identity(identify: object) -> LocalIdentity:
    """The local issuer, where that is what an installation has."""
    if not isinstance(identify, LocalIdentity):
        raise NotConfigured("people sign in with Firebase here")
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
