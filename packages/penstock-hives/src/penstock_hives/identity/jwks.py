"""Another issuer's published keys: fetched once for all who wait, kept while they are fresh.

Keys are asked for when what is kept has grown old by the issuer's own word (`Cache-Control`), and
when a token names a key that is not among them, for issuers rotate; the latter at most once a
minute, so that tokens with invented names cost the issuer nothing. While the issuer cannot be
reached, keys of up to a day go on being used: a signature does not get worse because a server is
away.
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
from penstock_hives.identity.tokens import ALGORITHM
from penstock_store.cache import SingleFlight

log = get_logger(__name__)

#: Where Firebase publishes the keys its ID tokens are signed with.
FIREBASE_KEYS: Final = (
    "https://www.googleapis.com/service_accounts/v1/jwk/securetoken@system.gserviceaccount.com"
)
#: Without a word of the issuer's.
FRESH_SECONDS: Final = 3600.0
#: How long keys serve that could not be fetched again.
USABLE_SECONDS: Final = 86_400.0
#: Before another question about names nobody knows.
FAILURE_RETRY_SECONDS: Final = 60.0
#: After one that failed.
UNKNOWN_KEY_RETRY_SECONDS: Final = 5.0
FETCH_SECONDS: Final = 5.0
KEY_SET_BYTES: Final = 1 * MiB
_MAX_AGE: Final = re.compile(r"max-age=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class PublishedKeySet:
    """A key set as it was fetched, and for how long it is good."""

    keys: Mapping[str, RSAPublicKey]
    seconds: float = FRESH_SECONDS


Fetch = Callable[[], Awaitable[PublishedKeySet]]


class JwksKeySet:
    """`Keys` of an issuer that publishes them."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._flight: SingleFlight[None] = SingleFlight()
        self._published = PublishedKeySet({}, 0.0)
        self._fetched = -USABLE_SECONDS  #: when what is kept was fetched
        self._not_before = 0.0  #: when it may be tried again

    async def key(self, name: str) -> RSAPublicKey | None:
        now = self._clock()
        old = now - self._fetched >= self._published.seconds
        unknown = name not in self._published.keys
        if (old or unknown) and now >= self._not_before:
            await self._flight.run("keys", self._refresh)
        if self._clock() - self._fetched >= max(USABLE_SECONDS, self._published.seconds):
            raise KeysUnavailable("the issuer's keys cannot be fetched; tokens cannot be checked")
        return self._published.keys.get(name)

    async def _refresh(self) -> None:
        try:
            self._published = await self._fetch()
        except (httpx.HTTPError, KeysUnavailable) as error:
            log.warning("issuer's keys not fetched", reason=str(error))
            self._not_before = self._clock() + UNKNOWN_KEY_RETRY_SECONDS
            return
        self._fetched = self._clock()
        self._not_before = self._fetched + FAILURE_RETRY_SECONDS


def key_set_fetcher(client: httpx.AsyncClient, url: str = FIREBASE_KEYS) -> Fetch:
    """From where an issuer publishes them as a JWK set."""

    async def fetch() -> PublishedKeySet:
        document = bytearray()
        async with client.stream("GET", url, timeout=FETCH_SECONDS) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                document += piece
                if len(document) > KEY_SET_BYTES:
                    raise KeysUnavailable(f"{url} has more than {KEY_SET_BYTES:,} bytes")
        try:
            keys = read_key_set(json.loads(document))
        except ValueError as error:
            raise KeysUnavailable(f"{url} has no key set: {error}") from error
        said = _MAX_AGE.search(response.headers.get("cache-control", ""))
        return PublishedKeySet(keys, float(said[1]) if said else FRESH_SECONDS)

    return fetch


def read_key_set(document: Any) -> dict[str, RSAPublicKey]:
    """The RSA keys for signatures in a JWK set, by name; whatever else is in it is left out."""
    if not isinstance(document, Mapping) or not isinstance(document.get("keys"), list):
        raise ValueError("a key set is an object with a list of keys")
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


# What can go wrong on the way to an answer about a token, beside the token itself.


class KeysUnavailable(NotReady):
    """The issuer's keys cannot be had just now, so no word about any token is possible."""
