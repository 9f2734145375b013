"""The engine: workers share a socket, are replaced when they die, and change hands unnoticed."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.core.errors import ConfigurationError
from penstock.core.retry import RetryPolicy
from penstock_hives.server.master import Master, RestartBackoff
from penstock_hives.server.settings import EngineSettings, encode_settings
from tests.store.test_http_server import create_certificate

#: For what a busy machine may take; nothing here waits that long when it is well.
PATIENCE = 60.0
WHO = "tests.hives.app.engine.applications:who"


def settings(**given: Any) -> EngineSettings:
    usual: dict[str, Any] = {"application": WHO, "port": 0, "workers": 1, "linger": 0.3}
    return EngineSettings(**{**usual, **given})


class Running:
    """A master at work, and what a test asks of it."""

    def __init__(self, read: Callable[[], EngineSettings]) -> None:
        self.master = Master(read, RestartBackoff(RetryPolicy(first=0.05, longest=0.2, jitter=0.0)))
        self.stop, self.reload = asyncio.Event(), asyncio.Event()
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(
            self.master.run(self.stop, self.reload, self.url.set_result)
        )

    @property
    def pids(self) -> set[int]:
        assert self.master.generation is not None
        return {slot.pid for slot in self.master.generation.slots if slot.pid is not None}

    async def reloaded(self) -> None:
        before = self.master.metrics.reloads
        self.reload.set()
        await until(lambda: self.master.metrics.reloads > before)


@asynccontextmanager
async def running(read: Callable[[], EngineSettings]) -> AsyncIterator[Running]:
    engine = Running(read)
    try:
        waited: set[asyncio.Future[Any]] = {engine.task, engine.url}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if engine.task.done():
            engine.task.result()
        yield engine
    finally:
        engine.stop.set()
        await asyncio.wait_for(asyncio.wait({engine.task}), PATIENCE)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.02)


async def eventually(attempt: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await attempt():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.02)


async def asked(url: str, path: str = "/") -> str:
    """An answer over a connection of its own."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.get(url + path)
    assert answer.status_code == 200
    return answer.text


async def test_every_worker_answers_on_the_one_address() -> None:
    async with running(lambda: settings(workers=2)) as engine:
        url = await engine.url
        answered: set[int] = set()

        async def all_have() -> bool:
            answers = await asyncio.gather(*(asked(url) for _ in range(8)))
            answered.update(int(answer.split()[0]) for answer in answers)
            return answered == engine.pids

        await eventually(all_have)
        assert len(answered) == 2


async def test_with_a_certificate_workers_speak_https(tmp_path: Path) -> None:
    certificate, key = create_certificate(tmp_path)
    async with running(lambda: settings(certificate=certificate, key=key)) as engine:
        url = await engine.url
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=certificate)
        async with httpx.AsyncClient(verify=trusted, timeout=PATIENCE) as client:
            assert (await client.get(url)).status_code == 200


async def test_a_client_that_sends_no_request_is_closed() -> None:
    async with running(lambda: settings(header_timeout=0.05)) as engine:
        address = httpx.URL(await engine.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n")
        assert b" 408 " in await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()


async def test_a_worker_that_dies_is_replaced() -> None:
    async with running(settings) as engine:
        url = await engine.url
        (before,) = engine.pids
        with pytest.raises(httpx.HTTPError):
            await asked(url, "/die")
        assert int((await asked(url)).split()[0]) != before  # it waited for the next one
        assert engine.master.generation is not None
        assert engine.master.metrics.restarts == 1


async def test_a_worker_whose_loop_stands_still_is_replaced() -> None:
    async with running(lambda: settings(silence=4.0)) as engine:
        url = await engine.url
        before = int((await asked(url)).split()[0])
        with pytest.raises(httpx.HTTPError):
            await asked(url, "/stand-still")
        assert int((await asked(url)).split()[0]) != before


async def test_a_reload_brings_new_processes_and_the_new_configuration() -> None:
    greetings = iter(["hello", "good day"])
    async with running(lambda: settings(options={"greeting": next(greetings)})) as engine:
        url = await engine.url
        before = await asked(url)
        await engine.reloaded()

        async def changed() -> bool:
            return (await asked(url)).endswith("good day")

        await eventually(changed)
        assert before.endswith("hello")


async def test_a_reload_loses_no_request_of_clients_that_keep_their_connections() -> None:
    async with running(lambda: settings(workers=2, linger=5.0)) as engine:
        url = await engine.url
        over = asyncio.Event()

        async def keep_asking() -> set[str]:
            seen = set()
            async with httpx.AsyncClient(timeout=PATIENCE) as client:
                while not over.is_set():
                    answer = await client.get(url)
                    assert answer.status_code == 200
                    seen.add(answer.text)
            return seen

        clients = [asyncio.create_task(keep_asking()) for _ in range(4)]
        for _ in range(2):
            old = engine.pids
            await engine.reloaded()
            await until(lambda old=old: not any(_lives(pid) for pid in old))  # type: ignore[misc]
        over.set()
        seen = set[str]().union(*await asyncio.gather(*clients))
        assert len(seen) >= 3  # they were answered by several generations


async def test_a_reload_waits_for_requests_at_hand(tmp_path: Path) -> None:
    options = {"began": str(tmp_path / "began"), "go": str(tmp_path / "go")}
    async with running(lambda: settings(options=options, drain=PATIENCE)) as engine:
        url = await engine.url
        (old,) = engine.pids
        slow = asyncio.create_task(asked(url, "/slow"))
        await until(lambda: (tmp_path / "began").exists())
        await engine.reloaded()
        assert int((await asked(url)).split()[0]) != old  # the new one serves meanwhile
        (tmp_path / "go").touch()
        assert int((await slow).split()[0]) == old


async def test_streams_are_ended_in_order_by_a_drain() -> None:
    async with running(settings) as engine:
        async with (
            httpx.AsyncClient(timeout=PATIENCE) as client,
            client.stream("GET", await engine.url + "/stream") as answer,
        ):
            lines = answer.aiter_lines()
            assert await anext(lines) == "first"
            engine.stop.set()
            assert await anext(lines) == "last"


async def test_a_reload_with_a_mistake_in_it_changes_nothing() -> None:
    reads: list[int] = []

    def read() -> EngineSettings:
        reads.append(1)
        if len(reads) > 1:
            raise ConfigurationError("workers: should be a number")
        return settings()

    async with running(read) as engine:
        before = engine.pids
        engine.reload.set()
        await until(lambda: engine.master.metrics.refused_reloads == 1)
        assert engine.pids == before
        await asked(await engine.url)


async def test_a_reload_whose_workers_cannot_run_changes_nothing() -> None:
    applications = iter([WHO, WHO.replace("who", "impossible")])
    async with running(lambda: settings(application=next(applications))) as engine:
        before = await asked(await engine.url)
        engine.reload.set()
        await until(lambda: engine.master.metrics.refused_reloads == 1)
        assert await asked(await engine.url) == before


async def test_an_application_that_cannot_run_ends_the_engine_and_says_so() -> None:
    with pytest.raises(ConfigurationError):
        async with running(lambda: settings(application=WHO.replace("who", "impossible"))):
            pass


async def test_an_address_that_is_taken_is_told_by_name() -> None:
    async with running(settings) as engine:
        port = int((await engine.url).rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}"):
            async with running(lambda: settings(port=port)):
                pass


async def test_two_engines_live_in_one_process() -> None:
    async with running(settings) as one, running(settings) as other:
        assert await asked(await one.url) != await asked(await other.url)


async def test_a_worker_ends_when_its_master_has_gone_without_a_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock_hives.server.worker", str(listener.fileno())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(listener.fileno(),),
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(encode_settings(settings()).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            assert await worker.stdout.readline() == b"ready\n"
            worker.stdin.close()  # as the system does for one that was killed
            assert await worker.wait() == 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
