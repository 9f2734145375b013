"""Connections that break, and other protocols: the work goes on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.core.errors import PenstockError
from penstock_jobs import client as blocking
from penstock_jobs.client import JobsClient
from penstock_jobs.errors import JobFailed
from penstock_jobs.model import CommandRun, Fake, FunctionCall, JobOptions
from penstock_jobs.queue.topology import request_name
from tests.fixtures import NewPenstock, needed, running
from tests.integration.jobs.conftest import until
from tests.integration.jobs.running import PATIENCE, SAMPLES, clean, tapped, working
from tests.peers import Penstock
from tests.sshd import Sshd


async def test_work_goes_on_while_the_broker_restarts_and_is_answered_once(
    new_penstock: NewPenstock,
) -> None:
    broker = new_penstock()
    async with (
        asyncio.timeout(2 * PATIENCE),
        JobsClient(broker.url) as client,
        working(broker.url) as worker,
    ):
        job = await client.submit(FunctionCall("through", f"{SAMPLES}:take", (3.0,)))
        responses = aiter(job)
        await anext(responses)

        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)

        assert (await job.result()).final
        assert (worker.metrics.done, worker.metrics.lost) == (1, 1)
        after = await client.submit(FunctionCall("after", f"{SAMPLES}:add", (1, 2)))
        assert (await after.result()).value == 3


@pytest.mark.parametrize("scheme", ["amqp://", "amqp+1.0://"])
async def test_who_is_not_let_in_again_does_not_wait_for_answers(
    new_penstock: NewPenstock, scheme: str
) -> None:
    broker = new_penstock()
    url = broker.url.replace("amqp://", scheme)
    async with asyncio.timeout(3 * PATIENCE), tapped(broker.url, "fake"):
        async with JobsClient(url) as client:
            asked = await client.submit(Fake("nobody does it", 1.0, 0.1))

            async with httpx.AsyncClient(auth=("guest", "guest"), timeout=PATIENCE) as management:
                another = {"password": "another", "tags": "administrator"}
                await management.put(f"{broker.http_url}/api/users/guest", json=another)
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(broker.start)

            with pytest.raises(PenstockError):
                await asked.result()
            with pytest.raises(PenstockError):
                await anext(aiter(asked))
            with pytest.raises(PenstockError):
                await client.submit(Fake("nor is this asked for", 1.0, 0.1))


async def test_a_queue_that_was_deleted_is_declared_again(
    jobs_url: str, client: JobsClient
) -> None:
    async with working(jobs_url) as worker:
        await (await client.submit(FunctionCall("before", f"{SAMPLES}:nothing"))).result()
        async with tapped(jobs_url, "call") as tap:
            await tap.delete(request_name("call"))
            await until(lambda: worker.metrics.lost == 1)
            await tap.exists(request_name("call"))
        job = await client.submit(FunctionCall("behind", f"{SAMPLES}:nothing"))

        assert (await job.result()).final


async def test_a_backlog_is_answered_while_the_worker_still_begins_to_consume(
    jobs_url: str, client: JobsClient
) -> None:
    """RabbitMQ closes a channel that asks for anything while it commits."""
    jobs = [await client.submit(Fake(f"early {number}", 0, 1)) for number in range(50)]

    async with working(jobs_url) as worker:
        for job in jobs:
            await job.result()
        assert worker.metrics.lost == 0


def test_a_program_that_waits_can_ask_as_well(penstock: Penstock) -> None:
    clean(penstock.url)

    async def worker(asked: asyncio.Event) -> None:
        async with working(penstock.url):
            await asked.wait()

    async def around() -> None:
        asked = asyncio.Event()
        task = asyncio.create_task(worker(asked))
        await asyncio.to_thread(ask)
        asked.set()
        await task

    def ask() -> None:
        with blocking.BlockingJobsClient(penstock.url) as jobs:
            job = jobs.submit(Fake("blocking", 0.3, 0.1))
            shares = [response.progress for response in job]
            assert shares[-1] == 1.0
            assert job.result(timeout=PATIENCE).final

    asyncio.run(asyncio.wait_for(around(), PATIENCE))
    clean(penstock.url)


# SSH.


async def test_commands_run_on_another_machine_by_ssh(
    jobs_url: str, client: JobsClient, tmp_path: Path
) -> None:
    with running(needed(Sshd, tmp_path / "sshd")) as sshd:
        remote: Any = {"shell": sshd.url, "keys": (sshd.key,), "known_hosts": sshd.known_hosts}
        program = "import os; print(os.environ['SSH_CONNECTION'].split()[0], os.getcwd())"
        async with working(jobs_url, programs=(sys.executable,), **remote):
            job = await client.submit(CommandRun("there", (sys.executable, "-c", program)))
            value = (await job.result()).value

    assert isinstance(value, dict)
    address, place = str(value["output"]).split()
    assert address == "127.0.0.1"
    assert not Path(place).exists()


async def test_a_machine_that_is_not_known_is_refused(
    jobs_url: str, client: JobsClient, tmp_path: Path
) -> None:
    with running(needed(Sshd, tmp_path / "sshd")) as sshd:
        nobody = tmp_path / "nobody"
        nobody.write_text("")
        remote: Any = {"shell": sshd.url, "keys": (sshd.key,), "known_hosts": nobody}
        async with working(jobs_url, programs=("/bin/true",), **remote):
            job = await client.submit(CommandRun("no", ("/bin/true",)), JobOptions(attempts=1))
            with pytest.raises(JobFailed, match=r"(?i)host key"):
                await job.result()
