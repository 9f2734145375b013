"""Identity as one: what checks tokens and, with the local issuer, what people sign in with.

async with open_identity(IdentitySettings(), production=False, environment=os.environ) as who:
    async with open_resources(settings, identify=who) as resources:
        ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx

from penstock.hives.app.demonstration import DEMO_UIDS
from penstock.hives.app.domain.errors import NotConfigured
from penstock.hives.app.domain.identity import Identity
from penstock.hives.app.identity.issuer import LocalIssuer
from penstock.hives.app.identity.jwks import PublishedKeys, fetching
from penstock.hives.app.identity.letters import FiledLetters, Letters, MailedLetters
from penstock.hives.app.identity.local import SignIn
from penstock.hives.app.identity.passwords import Passwords
from penstock.hives.app.identity.settings import IdentitySettings, check
from penstock.hives.app.identity.signing import SigningKeys
from penstock.hives.app.identity.tokens import TokenVerifier
from penstock.hives.app.repositories.pool import Pool


class Local:
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
        self._passwords = Passwords()
        self._refused = DEMO_UIDS if production else ()
        self._clock = clock
        self._letters: Letters = (
            FiledLetters(settings.folder / "letters")
            if settings.mail is None
            else MailedLetters(
                settings.mail, settings.mail_authority, allow_cleartext=settings.mail_cleartext
            )
        )

    async def verify(self, token: str) -> Identity:
        return await self._verifier.verify(token)

    def sign_in(self, pool: Pool) -> SignIn:
        """The desk, over a pool of connections."""
        return SignIn(
            pool,
            self.issuer,
            self._passwords,
            self._letters,
            reset_link=self._settings.reset_link,
            sender=self._settings.sender,
            refused=self._refused,
            clock=self._clock,
        )


def local(identify: object) -> Local:
    """The local issuer, where that is what an installation has."""
    if not isinstance(identify, Local):
        raise NotConfigured("people sign in with Firebase here")
    return identify


@asynccontextmanager
async def open_identity(
    settings: IdentitySettings, *, production: bool, environment: Mapping[str, str]
) -> AsyncIterator[TokenVerifier | Local]:
    check(settings, production, environment)
    if settings.issuer == "local":
        keys = SigningKeys(settings.folder)
        await asyncio.to_thread(keys.open)
        issuer = LocalIssuer(settings.issuer_name, settings.project, keys)
        yield Local(settings, issuer, production=production)
        return
    async with httpx.AsyncClient() as client:
        published = PublishedKeys(fetching(client, settings.keys))
        yield TokenVerifier(settings.issuer_name, settings.project, published)
