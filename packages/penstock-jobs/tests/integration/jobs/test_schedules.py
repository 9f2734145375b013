"""Jobs that wait for a time or for others: each is answered once, whoever is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.core.errors import PreconditionFailed
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import Fake, JobOptions, JobState
from penstock_jobs.schedule.repository import JobSchedule, ScheduleRepository, workflow_jobs
from penstock_jobs.schedule.scheduler import JobScheduler
from penstock_jobs.service import JobService
from penstock_store import Database
from tests.databases import copy_of
from tests.integration.jobs.conftest import until
from tests.integration.jobs.running import PATIENCE, SAMPLES, WorkerProcess, clean, tapped, working
from tests.peers import Penstock


@pytest.fixture
async def service(penstock: Penstock, embedded_template: str) -> AsyncIterator[JobService]:
    clean(penstock.url)
    with copy_of(embedded_template) as url, Database(url) as database:
        async with asyncio.timeout(2 * PATIENCE), JobService(penstock.url, database) as jobs:
            yield jobs
    clean(penstock.url)


async def end_of(jobs: JobService, identity: str) -> JobState:
    async for record in jobs.watch(identity):
        state = record.state
    return state


async def test_a_group_is_joined_with_its_results(service: JobService, penstock: Penstock) -> None:
    add = f"{SAMPLES}:add"
    group = [{"type": "call", "function": add, "arguments": [n, n]} for n in range(3)]
    said = {"type": "call", "function": f"{SAMPLES}:say", "keywords": {"more": None}}
    join = {**said, "arguments": [{"$results": True}, 0]}
    async with working(penstock.url, slots=2) as worker:
        await service.submit(Fake("shown", 60.0, 0.1))
        async for record in service.watch("shown"):
            if record.state is JobState.RUNNING:
                break
        running = await service.workers()
        assert {name: [each.id for each in jobs] for name, jobs in running.items()} == {
            worker.name: ["shown"]
        }
        await service.cancel("shown")
        await service.submit_workflow({"id": "g", "group": group, "join": join})
        assert (await service.get("g.join")).state is JobState.SCHEDULED

        assert await end_of(service, "g.join") is JobState.DONE

    assert (await service.result("g.join")).value == [[0, 2, 4], 0, None]


async def test_what_comes_after_a_failed_job_does_not_start(
    service: JobService, penstock: Penstock
) -> None:
    chain = [{"type": "call", "function": "os:abort"}, {"type": "fake", "duration": 0}]
    async with working(penstock.url):
        await service.submit_workflow({"id": "c", "chain": chain})

        assert await end_of(service, "c.2") is JobState.CANCELLED
    assert "c.1, which is failed" in ((await service.get("c.2")).error or "")


async def test_jobs_wait_for_their_time_and_their_key(
    service: JobService, penstock: Penstock
) -> None:
    soon, late = datetime.now(UTC) + timedelta(seconds=0.2), datetime.now(UTC) + timedelta(days=1)
    await service.submit(Fake("soon", 0.0), at=soon)
    await service.submit(Fake("late", 0.0), JobOptions(unique="key"), at=late)
    with pytest.raises(PreconditionFailed, match="'late' with the unique key 'key'"):
        await service.submit(Fake("other", 0.0), JobOptions(unique="key"))
    async with working(penstock.url):
        assert await end_of(service, "soon") is JobState.DONE
        assert (await service.cancel("late")).state is JobState.CANCELLED
        await service.submit(Fake("other", 0.0), JobOptions(unique="key"))
        assert await end_of(service, "other") is JobState.DONE


async def test_a_schedule_starts_jobs_again_and_again(
    service: JobService, penstock: Penstock
) -> None:
    schedule = JobSchedule("often", b'{"id":"x","type":"fake","duration":0}', every=1.0)
    service.schedules.add_schedule(schedule)
    seen: set[str] = set()
    async with working(penstock.url):
        async for record in service.watch_all(0):
            if record.id.startswith("often.") and record.state is JobState.DONE:
                seen.add(record.id)
            if len(seen) == 2:
                break
    service.schedules.remove_schedule("often")


async def test_a_job_that_was_published_twice_is_answered_once(
    penstock: Penstock, embedded_template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a scheduler that is killed after it has published and before it has written so, and by
    workers that are killed while they work."""
    clean(penstock.url)
    count = 12
    group = [{"type": "fake", "duration": 0.3, "interval": 0.1}] * count
    workflow = {"id": "k", "group": group, "join": {"type": "fake", "duration": 0}}
    with copy_of(embedded_template) as url, Database(url) as database:
        schedules = ScheduleRepository(database, JobRepository(database))
        schedules.add_pending(workflow_jobs(workflow, JobOptions()))
        options = ("worker", "--database", url, "--fork", "2")
        async with asyncio.timeout(2 * PATIENCE), tapped(penstock.url, "fake") as tap:
            service = JobService(penstock.url, database)
            monkeypatch.setattr(service.schedules, "remove_pending", lambda _: False)
            await service._requester.open()
            assert (
                await JobScheduler(
                    service._requester, service._repository, service.schedules
                ).release()
                == count
            )
            await service._requester.close()
            database.execute("UPDATE job_pending SET claimed_at = NULL")
            first = WorkerProcess(penstock.url, tmp_path, *options).ready()
            await until(lambda: sum(tap.finals.values()) >= 2)
            first.kill()
            second = WorkerProcess(penstock.url, tmp_path, *options).ready()
            await until(lambda: tap.finals["k.join"] > 0)
            second.stop()
        expected = {f"k.{n}": 1 for n in range(1, count + 1)} | {"k.join": 1}
        assert dict(tap.finals) == expected
    clean(penstock.url)
