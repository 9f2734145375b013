"""Sign-in at a token issuer: the authorization code flow with PKCE (RFC 6749, 7636).

A browser gets a code from the issuer and sends it here, with its verifier. The broker exchanges
them for an access token. So the issuer needs no CORS headers, the console connects to no other
site, and a client secret stays with the broker.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode

from penstock.broker.auth.jwks import DISCOVERY_PATH, fetch_json
from penstock.core.config import check_issuer_url
from penstock.core.errors import AuthenticationFailed, ResourceExhausted

if TYPE_CHECKING:
    from penstock.core.config import OAuth2Settings

#: Requests to the issuer at a time: anyone can cause them.
MAX_REQUESTS: Final = 4
#: Of an answer of the issuer, only these members are passed on.
TOKEN_MEMBERS: Final = ("access_token", "expires_in", "refresh_token")

#: URL, form, headers → the JSON answer; blocks.
Post = Callable[[str, Mapping[str, str] | None, Mapping[str, str]], Any]


class AuthorizationCodeClient:
    def __init__(
        self,
        settings: OAuth2Settings,
        *,
        post: Post | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._post = post or partial(_post, authority=settings.authority)
        self._clock = clock
        self._metadata: dict[str, Any] = {}
        self._fetched_at = -float("inf")
        self._requests = 0

    async def authorization_endpoint(self) -> str:
        return await self._endpoint("authorization_endpoint")

    async def exchange_code(self, code: str, verifier: str, redirect_uri: str) -> dict[str, Any]:
        """Raises `AuthenticationFailed` with the issuer's reason."""
        return await self._token(
            {
                "grant_type": "authorization_code",
                "code": code,
                "code_verifier": verifier,
                "redirect_uri": redirect_uri,
            }
        )

    async def refresh(self, refresh_token: str) -> dict[str, Any]:
        return await self._token({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def _token(self, form: dict[str, str]) -> dict[str, Any]:
        settings = self._settings
        headers = {}
        form["client_id"] = settings.client_id
        if settings.client_secret:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        answer = await self._ask(await self._endpoint("token_endpoint"), form, headers)
        if not isinstance(answer.get("access_token"), str):
            reason = answer.get("error_description") or answer.get("error") or "no access token"
            raise AuthenticationFailed(f"{settings.issuer}: {str(reason)[:500]}")
        return {key: answer[key] for key in TOKEN_MEMBERS if key in answer}

    async def _endpoint(self, name: str) -> str:
        """The issuer's metadata are used as long as its keys."""
        issuer = self._settings.issuer
        if self._clock() - self._fetched_at > self._settings.keys_lifetime:
            found = await self._ask(issuer.rstrip("/") + DISCOVERY_PATH, None, {})
            if found.get("issuer") != issuer:
                raise AuthenticationFailed(f"the metadata of {issuer} name another issuer")
            self._metadata, self._fetched_at = found, self._clock()
        try:
            return check_issuer_url(str(self._metadata.get(name, "")))
        except ValueError:
            raise AuthenticationFailed(f"the metadata of {issuer} have no usable {name}") from None

    async def _ask(
        self, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        if self._requests >= MAX_REQUESTS:
            raise ResourceExhausted("too many sign-ins at a time: try again")
        self._requests += 1
        try:
            found = await asyncio.to_thread(self._post, url, form, headers)
        except (OSError, ValueError, RecursionError) as error:
            raise AuthenticationFailed(
                f"{self._settings.issuer} does not answer: {error}"
            ) from None
        finally:
            self._requests -= 1
        return found if isinstance(found, dict) else {}


def _post(
    url: str,
    form: Mapping[str, str] | None,
    headers: Mapping[str, str],
    authority: Any = None,
) -> Any:
    """An error of OAuth 2 is an answer, too."""
    content = None if form is None else urlencode(form).encode()
    try:
        return fetch_json(url, authority, content=content, headers=headers)
    except HTTPError as error:
        with error:
            if error.code not in (400, 401):
                raise
            return json.loads(error.read(65536))
