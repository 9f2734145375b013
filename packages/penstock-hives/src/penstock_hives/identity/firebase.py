"""Sessions of the dashboards with accounts of Firebase: an e-mail address and a password, or an
account of Google or Apple.

The providers are those of the public page. Firebase names the sign-in page of a provider and, when
the browser comes back, exchanges the code for an ID token.

A session is Firebase's refresh token. The ID token that it is exchanged for is verified as those of
the API are, and asked for again when it expires, so an account that Firebase disables is signed out
within the hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx

from penstock.core.errors import AuthenticationFailed
from penstock_hives.errors import NotConfigured, NotReady
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.identity.tokens import TokenVerifier

#: Seconds that a verified session is not asked for again; ID tokens live for an hour.
_VERIFIED_SECONDS: Final = 3000.0
_MAX_SESSIONS: Final = 10_000
_TIMEOUT_SECONDS: Final = 10.0
PROVIDER_NAMES: Final = {"google.com": "Google", "apple.com": "Apple"}


class FirebaseSessions:
    def __init__(
        self,
        settings: IdentitySettings,
        verifier: TokenVerifier,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._verifier = verifier
        self._clock = clock
        self._users: dict[str, tuple[str, float]] = {}  #: uid and expiry by refresh token

    async def sign_in(self, login: str, password: str) -> str | None:
        """The session; None if the login or the password is wrong."""
        given = {"email": login, "password": password, "returnSecureToken": True}
        return await self._signed_in("signInWithPassword", given)

    def providers(self) -> dict[str, str]:
        return {
            each: PROVIDER_NAMES[each] for each in self._settings.of_page().get("providers", ())
        }

    async def begin(self, provider: str, back: str) -> tuple[str, str]:
        """The provider's sign-in page, and Firebase's id of the attempt."""
        if provider not in self.providers():
            raise NotConfigured(f"sign-in with {provider} is not enabled")
        given = {"providerId": provider, "continueUri": back, "authFlowType": "CODE_FLOW"}
        found = await self._accounts("createAuthUri", given)
        if found is None or not {"authUri", "sessionId"} <= found.keys():
            name = PROVIDER_NAMES[provider]
            raise NotConfigured(
                f"Firebase refuses the sign-in with {name}: enable {name} in the project, and make "
                f"{back} an authorised redirect URI"
            )
        return str(found["authUri"]), str(found["sessionId"])

    async def finish(self, provider: str, state: str, url: str) -> str | None:
        """The session; None if Firebase refuses what the provider sent back."""
        given = {
            "requestUri": url,
            "sessionId": state,
            "postBody": f"{urlsplit(url).query}&{urlencode({'providerId': provider})}",
            "returnSecureToken": True,
        }
        return await self._signed_in("signInWithIdp", given)

    async def user_of_session(self, key: str) -> str:
        uid, until = self._users.get(key, ("", 0.0))
        if self._clock() < until:
            return uid
        given = {"grant_type": "refresh_token", "refresh_token": key}
        found = await self._post(f"{self._settings.tokens_url}/v1/token", data=given)
        if found is None:
            self._users.pop(key, None)
            raise AuthenticationFailed("the session has ended")
        found["refresh_token"] = key  # the session keeps its name
        await self._verified(found, "id_token", "refresh_token")
        return self._users[key][0]

    def sign_out(self, key: str) -> None:
        self._users.pop(key, None)

    async def _signed_in(self, method: str, given: dict[str, Any]) -> str | None:
        found = await self._accounts(method, given)
        # Without tokens Firebase wants a second factor, or the account's first way to sign in.
        if found is None or not {"idToken", "refreshToken"} <= found.keys():
            return None
        return await self._verified(found, "idToken", "refreshToken")

    async def _accounts(self, method: str, given: dict[str, Any]) -> dict[str, Any] | None:
        return await self._post(f"{self._settings.accounts_url}/v1/accounts:{method}", json=given)

    async def _verified(self, found: dict[str, Any], id_token: str, refresh_token: str) -> str:
        uid = (await self._verifier.verify(found[id_token])).uid
        if len(self._users) >= _MAX_SESSIONS:
            self._users.clear()
        key = str(found[refresh_token])
        self._users[key] = (uid, self._clock() + _VERIFIED_SECONDS)
        return key

    async def _post(self, url: str, **given: Any) -> dict[str, Any] | None:
        """None if Firebase refuses what is given."""
        if self._settings.api_key is None:
            raise NotConfigured("set PENSTOCK_HIVES_IDENTITY_API_KEY to sign in with Firebase")
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
                answer = await client.post(url, params={"key": self._settings.api_key}, **given)
        except httpx.HTTPError as error:
            raise NotReady(f"Firebase does not answer: {error}") from error
        if answer.status_code == httpx.codes.BAD_REQUEST:
            return None
        if not answer.is_success:
            raise NotReady(f"Firebase answers {answer.status_code}; try again later")
        found: dict[str, Any] = answer.json()
        return found
