"""Progress as server-sent events, over a real socket: in process nothing streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from penstock_jobs.http.app import create_app
from penstock_jobs.http.routes import encode_events
from penstock_jobs.model import Fake, JobResponse, JobState
from penstock_store.http.server import serve_app
from tests.jobs.http.memory import MemoryJobs

PATIENCE = 60.0


@pytest.fixture
async def live(backend: MemoryJobs) -> AsyncIterator[httpx.AsyncClient]:
    async with serve_app(create_app(backend), "127.0.0.1", 0) as url:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            yield client


async def heard(stream: httpx.Response) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    """Id and data of each event."""
    number = 0
    async for line in stream.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            number = int(value)
        elif name == "data":
            yield number, json.loads(value)


async def test_progress_is_told_as_it_happens_until_the_job_ends(
    live: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    await backend.submit(Fake("a1"))
    told = []
    async with live.stream("GET", "/jobs/a1/progress") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        async for _, job in heard(stream):
            told.append((job["state"], job["progress"]))
            if len(told) == 1:
                await backend.change("a1", state=JobState.RUNNING, progress=0.5)
            elif len(told) == 2:
                await backend.finish("a1", JobResponse("a1", "fake"))
    assert told == [("waiting", 0.0), ("running", 0.5), ("done", 1.0)]


async def test_who_comes_back_is_told_what_was_missed_and_nothing_twice(
    live: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    await backend.submit(Fake("a1"))
    seen = (await backend.change("a1", state=JobState.RUNNING, progress=0.3)).revision
    await backend.finish("a1", JobResponse("a1", "fake"))
    headers = {"last-event-id": str(seen)}
    async with live.stream("GET", "/jobs/a1/progress", headers=headers) as stream:
        assert [job["state"] async for _, job in heard(stream)] == ["done"]


async def test_changes_of_all_jobs_can_be_followed(
    live: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    async with live.stream("GET", "/changes") as stream:
        await asyncio.wait_for(backend.watching.wait(), PATIENCE)
        await backend.submit(Fake("a1"))
        await backend.submit(Fake("a2"))
        told = heard(stream)
        async with aclosing(told):  # type: ignore[type-var]
            assert [(await anext(told))[1]["id"] for _ in range(2)] == ["a1", "a2"]


async def test_an_id_that_is_none_of_ours_is_refused(live: httpx.AsyncClient) -> None:
    answer = await live.get("/changes", headers={"last-event-id": "yesterday"})
    assert answer.status_code == 422


async def test_in_silence_a_comment_shows_that_the_stream_is_alive(backend: MemoryJobs) -> None:
    await backend.submit(Fake("a1"))
    stream = encode_events(backend.watch("a1"), keepalive=0.01)
    told = [await anext(stream) for _ in range(4)]
    assert told[0].startswith(b"retry:")
    assert told[1].startswith(b"id: 1\nevent: job\n")
    assert told[2:] == [b": here\n\n"] * 2
    await backend.finish("a1", JobResponse("a1", "fake"))
    assert b"event: job" in b"".join([part async for part in stream])
