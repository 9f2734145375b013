"""`/v1/live` as clients have it: events, sockets and polls over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import websockets

from penstock_hives.live.change_feed import ChangeFeed, EncodedOccupancy
from penstock_hives.live.endpoints import LIVE_PATH, live_endpoint, serve_event_stream
from tests.hives.app.serving import PATIENCE, served

EVENTS = {"accept": "text/event-stream"}


def figure(hive: int, version: int = 1) -> EncodedOccupancy:
    return EncodedOccupancy(
        hive, version, json.dumps({"hive_id": hive, "version": version}).encode()
    )


@asynccontextmanager
async def desk(feed: ChangeFeed, **limits: Any) -> AsyncIterator[str]:
    try:
        async with served(live_endpoint(feed, **limits)) as url:
            yield url + LIVE_PATH
            feed.close()
    finally:
        feed.close()


class Events:
    """The events of a stream, one at a time, comments left out."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()

    async def next(self) -> dict[str, str]:
        event: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if not line and "data" in event:
                    return event
                name, _, value = line.partition(": ")
                if name:
                    event[name] = value
        raise AssertionError("the stream has ended")


def versions(event: dict[str, str]) -> dict[int, int]:
    return {each["hive_id"]: each["version"] for each in json.loads(event["data"])}


@asynccontextmanager
async def reading(url: str, query: str = "", **headers: str) -> AsyncIterator[Events]:
    async with (
        httpx.AsyncClient(timeout=PATIENCE) as client,
        client.stream("GET", url + query, headers={**EVENTS, **headers}) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer)


async def test_a_stream_begins_with_how_hives_stand_and_goes_on_with_changes() -> None:
    feed = ChangeFeed()
    feed.publish(figure(1))
    async with desk(feed) as url, reading(url) as events:
        assert versions(await events.next()) == {1: 1}
        feed.publish(figure(1, 2))
        assert versions(await events.next()) == {1: 2}


async def test_a_stream_may_follow_some_hives_only() -> None:
    feed = ChangeFeed(pace=0)
    async with desk(feed) as url, reading(url, "?hives=2,3") as events:
        assert versions(await events.next()) == {}
        feed.publish(figure(1))
        feed.publish(figure(3))
        assert versions(await events.next()) == {3: 1}


async def test_who_comes_back_gets_what_was_missed_and_no_more() -> None:
    feed = ChangeFeed(pace=0)
    feed.publish(figure(1))
    async with desk(feed) as url:
        async with reading(url) as events:
            last = (await events.next())["id"]
        feed.publish(figure(2))
        async with reading(url, **{"last-event-id": last}) as events:
            assert versions(await events.next()) == {2: 1}
        async with reading(url, **{"last-event-id": "elsewhere-1"}) as events:
            assert versions(await events.next()) == {1: 1, 2: 1}


async def test_a_stream_ends_when_the_worker_drains() -> None:
    feed = ChangeFeed()
    async with desk(feed) as url, reading(url) as events:
        await events.next()
        feed.close()
        with pytest.raises(AssertionError, match="has ended"):
            await events.next()


async def test_streams_beyond_the_limit_are_refused_and_polling_is_not() -> None:
    async with desk(ChangeFeed(), max_streams=1) as url, reading(url) as events:
        await events.next()
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            refused = await client.get(url, headers=EVENTS)
            polled = await client.get(url)
        assert (refused.status_code, polled.status_code) == (503, 200)
        assert refused.headers["retry-after"]


async def test_a_reader_that_goes_makes_room() -> None:
    async with desk(ChangeFeed(), max_streams=1) as url:
        for _ in range(3):
            async with reading_when_there_is_room(url) as events:
                await events.next()


@asynccontextmanager
async def reading_when_there_is_room(url: str) -> AsyncIterator[Events]:
    async with asyncio.timeout(PATIENCE):
        while True:
            async with httpx.AsyncClient(timeout=PATIENCE) as client:
                async with client.stream("GET", url, headers=EVENTS) as answer:
                    if answer.status_code == 200:
                        yield Events(answer)
                        return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("query", ["?hives=a", "?hives=-1", "?hives=1," + "9" * 30, "?hives="])
async def test_hives_that_are_no_numbers_are_refused(query: str) -> None:
    async with desk(ChangeFeed()) as url, httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.get(url + query)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"


async def test_polling_says_when_nothing_changed() -> None:
    feed = ChangeFeed()
    feed.publish(figure(1))
    async with desk(feed) as url, httpx.AsyncClient(timeout=PATIENCE) as client:
        first = await client.get(url)
        tag = {"if-none-match": first.headers["etag"]}
        same = await client.get(url, headers=tag)
        feed.publish(figure(1, 2))
        changed = await client.get(url, headers=tag)
    assert [each.status_code for each in (first, same, changed)] == [200, 304, 200]
    assert changed.json()["figures"] == [{"hive_id": 1, "version": 2}]


async def test_an_entity_tag_is_known_by_every_worker() -> None:
    one, other = ChangeFeed(), ChangeFeed()
    for feed, order in ((one, (1, 2)), (other, (2, 1))):
        for hive in order:
            feed.publish(figure(hive))
    async with desk(one) as here, desk(other) as there, httpx.AsyncClient(timeout=60) as client:
        tag = (await client.get(here)).headers["etag"]
        assert (await client.get(there, headers={"if-none-match": tag})).status_code == 304


async def test_a_socket_follows_what_it_subscribes_to_and_leaves_what_it_does_not() -> None:
    feed = ChangeFeed(pace=0)
    feed.publish(figure(1))
    async with desk(feed) as url, websockets.connect(url.replace("http", "ws")) as socket:
        await socket.send(json.dumps({"subscribe": [1, 2]}))
        assert versions_of(await socket.recv()) == {1: 1}
        feed.publish(figure(3))
        feed.publish(figure(2))
        assert versions_of(await socket.recv()) == {2: 1}
        await socket.send(json.dumps({"unsubscribe": [2]}))
        await socket.send("what?")  # answered in turn: so the word before was heeded
        assert "error" in json.loads(await socket.recv())
        feed.publish(figure(2, 2))
        feed.publish(figure(1, 2))
        assert versions_of(await socket.recv()) == {1: 2}


@pytest.mark.parametrize(
    "word",
    ["nonsense", "[]", '{"subscribe": 3}', '{"subscribe": ["x"]}', '{"dance": [1]}', "9" * 20_000],
)
async def test_a_socket_is_told_what_it_said_wrong_and_stays(word: str) -> None:
    feed = ChangeFeed()
    feed.publish(figure(1))
    async with desk(feed) as url, websockets.connect(url.replace("http", "ws")) as socket:
        await socket.send(word)
        assert "error" in json.loads(await socket.recv())
        await socket.send(json.dumps({"subscribe": [1]}))
        assert versions_of(await socket.recv()) == {1: 1}


async def test_a_socket_is_told_to_come_back_when_the_worker_drains() -> None:
    feed = ChangeFeed()
    async with desk(feed) as url, websockets.connect(url.replace("http", "ws")) as socket:
        feed.close()
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012


def versions_of(text: str | bytes) -> dict[int, int]:
    return {each["hive_id"]: each["version"] for each in json.loads(text)["figures"]}


async def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    sent = []

    async def receive() -> dict[str, Any]:
        await asyncio.Future()
        raise AssertionError("nobody says anything")

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Future()  # the buffers are full, and stay so

    scope = {"type": "http", "headers": [], "client": ("somewhere", 1)}
    async with asyncio.timeout(PATIENCE):
        await serve_event_stream(scope, receive, send, ChangeFeed(), None, stall=0.01)
    assert sent == ["http.response.start", "http.response.body"]
