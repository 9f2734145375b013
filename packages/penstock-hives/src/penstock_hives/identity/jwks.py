"""The published keys of another issuer (JWKS), fetched and cached.

Keys are fetched when the cached ones have expired (`Cache-Control`), and when a token names an
unknown key, because issuers rotate keys; the latter at most once a minute, so that made-up key ids
cause no load. While the issuer is unreachable, keys are used for up to a day.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock_hives.errors import NotReady
from penstock_hives.identity.settings import FIREBASE_KEYS
from penstock_hives.identity.tokens import ALGORITHM
from penstock_store.cache import SingleFlight

log = get_logger(__name__)

#: Without Cache-Control.
FRESH_SECONDS: Final = 3600.0
#: How long keys are used that could not be fetched again.
USABLE_SECONDS: Final = 86_400.0
#: Between two fetches because of unknown key ids.
UNKNOWN_KEY_SECONDS: Final = 60.0
#: After a failed fetch.
RETRY_SECONDS: Final = 5.0
FETCH_SECONDS: Final = 5.0
KEY_SET_BYTES: Final = 1 * MiB
_MAX_AGE: Final = re.compile(r"max-age=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class PublishedKeySet:
    """A fetched key set and its lifetime."""

    keys: Mapping[str, RSAPublicKey]
    seconds: float = FRESH_SECONDS


Fetch = Callable[[], Awaitable[PublishedKeySet]]


class JwksKeySet:
    """A `KeySet` that is fetched."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._flight: SingleFlight[None] = SingleFlight()
        self._published = PublishedKeySet({}, 0.0)
        self._fetched = -USABLE_SECONDS  #: the time of the last fetch
        self._not_before = 0.0  #: the earliest time of the next fetch

    async def key(self, name: str) -> RSAPublicKey | None:
        now = self._clock()
        old = now - self._fetched >= self._published.seconds
        unknown = name not in self._published.keys
        if (old or unknown) and now >= self._not_before:
            await self._flight.run("keys", self._refresh)
        if self._clock() - self._fetched >= max(USABLE_SECONDS, self._published.seconds):
            raise KeysUnavailable("the keys of the token issuer cannot be fetched")
        return self._published.keys.get(name)

    async def _refresh(self) -> None:
        try:
            self._published = await self._fetch()
        except (httpx.HTTPError, KeysUnavailable) as error:
            log.warning("jwks fetch failed", reason=str(error))
            self._not_before = self._clock() + RETRY_SECONDS
            return
        self._fetched = self._clock()
        self._not_before = self._fetched + UNKNOWN_KEY_SECONDS


def key_set_fetcher(client: httpx.AsyncClient, url: str = FIREBASE_KEYS) -> Fetch:
    """Fetches a JWK set from a URL."""

    async def fetch() -> PublishedKeySet:
        document = bytearray()
        async with client.stream("GET", url, timeout=FETCH_SECONDS) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                document += chunk
                if len(document) > KEY_SET_BYTES:
                    raise KeysUnavailable(f"{url} has more than {KEY_SET_BYTES:,} bytes")
        try:
            keys = read_key_set(json.loads(document))
        except ValueError as error:
            raise KeysUnavailable(f"{url} is not a JWK set: {error}") from error
        max_age = _MAX_AGE.search(response.headers.get("cache-control", ""))
        return PublishedKeySet(keys, float(max_age[1]) if max_age else FRESH_SECONDS)

    return fetch


def read_key_set(document: Any) -> dict[str, RSAPublicKey]:
    """The RSA signature keys of a JWK set by key id; others are ignored."""
    if not isinstance(document, Mapping) or not isinstance(document.get("keys"), list):
        raise ValueError("must be an object with a list `keys`")
    found: dict[str, RSAPublicKey] = {}
    for each in document["keys"]:
        if not isinstance(each, Mapping) or each.get("kty") != "RSA" or "kid" not in each:
            continue
        if each.get("use", "sig") != "sig" or each.get("alg", ALGORITHM) != ALGORITHM:
            continue
        try:
            key = jwt.PyJWK(dict(each), ALGORITHM).key
        except jwt.PyJWTError as error:
            raise ValueError(f"key {each['kid']}: {error}") from error
        if isinstance(key, RSAPublicKey):
            found[str(each["kid"])] = key
    return found


class KeysUnavailable(NotReady):
    """The keys of the issuer cannot be fetched, so no token can be verified."""
