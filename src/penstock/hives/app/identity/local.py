"""Signing in where there is no Firebase: sign-up, sign-in, refresh, sign-out, password reset.

An ID token lasts an hour and cannot be taken back. What can is the refresh token it is renewed
with, which is good once: using it gives another, and using it again means that two have it, so
then all of that person's are revoked. A new password revokes them, too. The dashboards keep one
as their session, and ask whose it is (`holder`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.core.errors import AuthenticationFailed
from penstock.core.logs import get_logger
from penstock.hives.app.domain.errors import Conflict, Fault, Invalid
from penstock.hives.app.identity.attempts import SignInAttempts
from penstock.hives.app.identity.credentials import Credential, Credentials, Refresh, digest
from penstock.hives.app.identity.issuer import LocalIssuer
from penstock.hives.app.identity.letters import Letters, reset_letter
from penstock.hives.app.identity.passwords import Passwords, acceptable
from penstock.hives.app.repositories.pool import Pool

log = get_logger(__name__)

REFRESH_LIFE: Final = timedelta(days=30)
RESET_LIFE: Final = timedelta(hours=1)
#: What a letter's header has between addresses or around them (RFC 5322): no part of one here.
_SEPARATORS: Final = frozenset('(),:;<>[]\\"')
_WRONG: Final = "the login or the password is wrong"
_ENDED: Final = "this refresh token does not hold: sign in"


@dataclass(frozen=True, slots=True)
class Session:
    """What somebody gets who has proved who they are."""

    id_token: str
    refresh_token: str
    expires_in: int  #: seconds, of the ID token
    uid: str


class SignIn:
    """The local issuer's desk."""

    def __init__(
        self,
        pool: Pool,
        issuer: LocalIssuer,
        passwords: Passwords,
        letters: Letters,
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

    async def sign_up(self, login: str, password: str) -> Session:
        login = spelled(login)
        acceptable(login, password)
        credential = Credential(
            f"l{secrets.token_urlsafe(20)}", login, await self._passwords.hash(password)
        )
        async with self._pool.transaction() as connection:
            credentials = Credentials(connection)
            if not await credentials.add(credential):
                raise Conflict("somebody has signed up with this login already")
            return await self._session(credentials, credential.uid, self._clock())

    async def sign_in(self, login: str, password: str) -> Session:
        login = spelled(login)
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).begin(login, self._clock())
            credential = await Credentials(connection).find(login)
        if credential is not None and credential.uid in self._refused:
            credential = None
        stored = credential.password_hash if credential is not None else None
        if not await self._passwords.check(stored, password) or credential is None:
            raise AuthenticationFailed(_WRONG)
        async with self._pool.transaction() as connection:
            await SignInAttempts(connection).clear(login)
            return await self._session(Credentials(connection), credential.uid, self._clock())

    async def holder(self, token: str) -> str:
        """Whose refresh token it is; raises when it does not hold."""
        async with self._pool.reading() as connection:
            found = await Credentials(connection).refresh(digest(token), lock=False)
        if found is None or found.revoked_at is not None or not self._holds(found):
            raise AuthenticationFailed(_ENDED)
        return found.uid

    async def refresh(self, token: str) -> Session:
        now = self._clock()
        stolen = None
        async with self._pool.transaction() as connection:
            credentials = Credentials(connection)
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
            await Credentials(connection).revoke(digest(token), self._clock())

    async def ask_reset(self, login: str) -> None:
        """Looks the same whether there is such a login or not."""
        login = spelled(login)
        token = secrets.token_urlsafe(32)
        async with self._pool.transaction() as connection:
            known = await Credentials(connection).expect_reset(
                login, digest(token), self._clock() + RESET_LIFE
            )
        if known:
            link = f"{self._reset_link}{token}"
            try:
                await self._letters.send(reset_letter(self._sender, login, link))
            except OSError as error:  # whatever a mail server says is one, too
                log.error("letter not sent", reason=str(error))

    async def reset(self, token: str, password: str) -> None:
        now = self._clock()
        async with self._pool.reading() as connection:
            login = await Credentials(connection).resetting(digest(token), now)
        if login is None:
            raise AuthenticationFailed("this link does not hold any more: ask for another")
        acceptable(login, password)
        hashed = await self._passwords.hash(password)
        async with self._pool.transaction() as connection:
            credentials = Credentials(connection)
            credential = await credentials.reset(digest(token), hashed, now)
            if credential is None:
                raise AuthenticationFailed("this link does not hold any more: ask for another")
            await credentials.revoke_all(credential.uid, now)
            await SignInAttempts(connection).clear(login)

    def _holds(self, refresh: Refresh) -> bool:
        return refresh.expires_at > self._clock() and refresh.uid not in self._refused

    async def _session(self, credentials: Credentials, uid: str, since: datetime) -> Session:
        issued = self._issuer.issue(uid, since.timestamp())
        refresh = secrets.token_urlsafe(32)
        now = self._clock()
        await credentials.forget_expired(uid, now)
        await credentials.keep(digest(refresh), Refresh(uid, now + REFRESH_LIFE, None, since))
        return Session(issued.token, refresh, issued.expires_in, uid)


def spelled(login: str) -> str:
    """A login as it is kept: one address, in small letters."""
    spelled = login.strip().lower()
    if any(letter.isspace() for letter in spelled):
        raise Invalid("no such login", [Fault("login", "has no blanks")])
    name, at, domain = spelled.partition("@")
    one = name and at and domain and not _SEPARATORS & set(spelled) and "@" not in domain
    if not one or len(spelled) > 254 or not spelled.isprintable():
        raise Invalid("no such login", [Fault("login", "is an e-mail address")])
    return spelled
