"""Keys: an issuer's are fetched once and kept; our own are shared by processes and rotate."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import httpx
import pytest

from penstock_hives.identity.issuer import LocalIssuer, SigningKeys, key_id
from penstock_hives.identity.jwks import (
    JwksKeySet,
    KeysUnavailable,
    PublishedKeySet,
    key_set_fetcher,
    read_key_set,
)
from tests.hives.app.identity import given as a


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Issuer:
    """Publishes keys, and counts how often it is asked for them."""

    def __init__(self) -> None:
        self.published = {a.NAME: a.KEY.public_key()}
        self.fetched = 0
        self.asked = asyncio.Event()
        self.away = False
        self.gate: asyncio.Event | None = None

    async def fetch(self) -> PublishedKeySet:
        self.fetched += 1
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise httpx.ConnectError("nobody there")
        return PublishedKeySet(dict(self.published), 600.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def keys(issuer: Issuer, clock: Clock) -> JwksKeySet:
    return JwksKeySet(issuer.fetch, clock)


async def test_keys_are_fetched_once_while_they_are_fresh(
    keys: JwksKeySet, issuer: Issuer, clock: Clock
) -> None:
    for _ in range(3):
        assert await keys.key(a.NAME) is not None
        clock.now += 100
    assert issuer.fetched == 1


async def test_many_who_wait_share_one_question(keys: JwksKeySet, issuer: Issuer) -> None:
    issuer.gate = asyncio.Event()
    waiting = [asyncio.create_task(keys.key(a.NAME)) for _ in range(50)]
    await asyncio.sleep(0)
    issuer.gate.set()
    assert None not in await asyncio.gather(*waiting)
    assert issuer.fetched == 1


async def test_who_comes_while_keys_are_being_fetched_waits_for_them(
    keys: JwksKeySet, issuer: Issuer
) -> None:
    issuer.gate = asyncio.Event()
    first = asyncio.create_task(keys.key(a.NAME))
    await issuer.asked.wait()
    late = asyncio.create_task(keys.key(a.NAME))
    await asyncio.sleep(0)
    issuer.gate.set()
    assert None not in await asyncio.gather(first, late)
    assert issuer.fetched == 1


async def test_a_new_key_is_found_when_a_token_names_it(
    keys: JwksKeySet, issuer: Issuer, clock: Clock
) -> None:
    await keys.key(a.NAME)
    issuer.published["new"] = a.new_key().public_key()
    clock.now += 61
    assert await keys.key("new") is not None


async def test_invented_names_do_not_bother_the_issuer(keys: JwksKeySet, issuer: Issuer) -> None:
    for number in range(20):
        assert await keys.key(f"invented{number}") is None
    assert issuer.fetched == 1


async def test_a_key_that_was_withdrawn_is_believed_no_more(
    keys: JwksKeySet, issuer: Issuer, clock: Clock
) -> None:
    await keys.key(a.NAME)
    issuer.published = {"new": a.new_key().public_key()}
    clock.now += 601
    assert await keys.key(a.NAME) is None


async def test_while_the_issuer_is_away_keys_serve_for_a_day(
    keys: JwksKeySet, issuer: Issuer, clock: Clock
) -> None:
    await keys.key(a.NAME)
    issuer.away = True
    clock.now += 80_000
    assert await keys.key(a.NAME) is not None
    clock.now += 10_000
    with pytest.raises(KeysUnavailable):
        await keys.key(a.NAME)
    issuer.away = False
    clock.now += 6
    assert await keys.key(a.NAME) is not None


async def test_a_key_set_is_fetched_over_http_with_its_life(tmp_path: Path) -> None:
    ours = SigningKeys(tmp_path)
    ours.open()

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"cache-control": "public, max-age=21600, must-revalidate"}
        return httpx.Response(200, json=ours.published(), headers=headers)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        published = await key_set_fetcher(client)()
    assert published.seconds == 21600
    assert list(published.keys) == [ours.current[0]]


@pytest.mark.parametrize("document", [[], {}, {"keys": 7}, {"keys": [{"kty": "RSA", "kid": "x"}]}])
def test_what_is_no_key_set_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="key"):
        read_key_set(document)


def test_keys_that_are_not_for_signatures_are_left_out(tmp_path: Path) -> None:
    ours = SigningKeys(tmp_path)
    ours.open()
    (key,) = ours.published()["keys"]
    symmetric = {"kty": "oct", "kid": "secret", "k": "AAAA"}
    others = [symmetric, {**key, "use": "enc"}, {**key, "alg": "PS512"}]
    assert read_key_set({"keys": others}) == {}


def test_processes_that_start_together_get_the_same_key(tmp_path: Path) -> None:
    first, second = SigningKeys(tmp_path), SigningKeys(tmp_path)
    first.open()
    second.open()
    assert first.current[0] == second.current[0]


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    SigningKeys(tmp_path / "keys").open()
    (file,) = (tmp_path / "keys").glob("*.pem")
    assert file.stat().st_mode & 0o077 == 0


async def test_what_an_old_key_has_signed_holds_after_a_rotation(tmp_path: Path) -> None:
    keys = SigningKeys(tmp_path)
    keys.open()
    issuer = LocalIssuer("https://bees.local", "bees", keys)
    before = issuer.issue("ada").token
    new = keys.rotate()
    assert keys.current[0] == new
    for token in (before, issuer.issue("ada").token):
        assert (await issuer.verifier().verify(token)).uid == "ada"


async def test_a_key_that_another_process_added_is_found(tmp_path: Path) -> None:
    ours, others = SigningKeys(tmp_path), SigningKeys(tmp_path)
    ours.open()
    others.open()
    name = others.rotate()
    assert await ours.key(name) is not None


async def test_a_key_that_was_rotated_out_is_believed_no_more(tmp_path: Path) -> None:
    keys = SigningKeys(tmp_path)
    keys.open()
    first = keys.current[0]
    keys.rotate()
    keys.rotate()
    assert await keys.key(first) is None


def test_a_name_is_the_keys_thumbprint() -> None:
    assert len(key_id(a.KEY.public_key())) == 43


async def test_a_key_set_without_end_is_not_read() -> None:
    body = gzip.compress(bytes(50_000_000))

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body, headers={"content-encoding": "gzip"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(KeysUnavailable, match="more than 1,048,576 bytes"):
            await key_set_fetcher(client)()
