"""The phases every request passes: rewrite, locate, access, content, filters, log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from penstock_hives.server.asgi import (
    AsgiApplication,
    Location,
    LocationRouter,
    Receive,
    Scope,
    Send,
    send_response,
)
from tests.hives.app.serving import PATIENCE, served


def saying(word: str) -> AsgiApplication:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        body = f"{word} {scope['path']}".encode()
        await send_response(send, 200, [(b"content-length", str(len(body)).encode())], body)

    return application


@asynccontextmanager
async def client_of(site: LocationRouter) -> AsyncIterator[httpx.AsyncClient]:
    async with served(site) as url, httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        yield client


async def test_a_request_is_located_by_the_longest_beginning_of_its_path() -> None:
    locations = [
        Location("page", "/", saying("page")),
        Location("live", "/v1/live", saying("live")),
    ]
    async with client_of(
        LocationRouter([*locations, Location("api", "/v1/", saying("api"))], {})
    ) as client:
        answers = [await client.get(path) for path in ("/", "/v1/hives", "/v1/live", "/x")]
    assert [answer.text.split()[0] for answer in answers] == ["page", "api", "live", "page"]


async def test_names_may_stand_for_others() -> None:
    async with client_of(
        LocationRouter([Location("page", "/", saying("page"))], {"/": "/index.html"})
    ) as client:
        assert (await client.get("/")).text == "page /index.html"


async def test_what_is_nowhere_is_not_found() -> None:
    async with client_of(LocationRouter([Location("api", "/v1/", saying("api"))], {})) as client:
        assert (await client.get("/other")).status_code == 404


async def test_a_location_refuses_more_than_it_takes_at_a_time() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go.wait()
        await send_response(send, 200, [(b"content-length", b"0")])

    site = LocationRouter([Location("api", "/", slow, max_requests=1)], {})
    async with client_of(site) as client:
        first = asyncio.create_task(client.get("/"))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        refused = await client.get("/")
        go.set()
        assert (await first).status_code == 200
        assert (await client.get("/")).status_code == 200  # there is room again
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


async def test_answers_of_the_api_are_filtered() -> None:
    site = LocationRouter([Location("api", "/", saying("api"), max_requests=9)], {})
    async with client_of(site) as client:
        answer = await client.get("/")
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_room_is_made_by_answers_that_fail() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a mistake of ours")

    site = LocationRouter([Location("api", "/", failing, max_requests=1)], {})
    async with client_of(site) as client:
        statuses = [(await client.get("/")).status_code for _ in range(3)]
    assert statuses == [500, 500, 500]


async def test_the_client_address_of_a_trusted_proxy_is_the_one_it_forwards() -> None:
    async def who(scope: Scope, receive: Receive, send: Send) -> None:
        body = f"{scope['client'][0]} {scope['scheme']}".encode()
        await send_response(send, 200, [(b"content-length", str(len(body)).encode())], body)

    forged = {
        "x-forwarded-for": "198.51.100.1, 203.0.113.9, 10.0.0.7",
        "x-forwarded-proto": "https",
    }
    trusted = ["127.0.0.0/8", "10.0.0.7"]
    for proxies, expected in ((trusted, "203.0.113.9 https"), ([], "127.0.0.1 http")):
        async with (
            served(who, trusted_proxies=proxies) as url,
            httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client,
        ):
            assert (await client.get("/", headers=forged)).text == expected
