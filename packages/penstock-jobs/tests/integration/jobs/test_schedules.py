"""Jobs that wait for a time or for others: each is answered once, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.core.basic_properties import BasicProperties
from penstock.core.errors import ContentTooLarge, PreconditionFailed, QueueFull
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import FINAL_STATES, Fake, JobOptions, JobState
from penstock_jobs.schedule.repository import (
    JobSchedule,
    PendingJob,
    ScheduleRepository,
    workflow_jobs,
)
from penstock_jobs.schedule.scheduler import JobScheduler
from penstock_jobs.service import JobService
from penstock_jobs.worker.factory import WorkerPlan, build_worker
from penstock_jobs.worker.history_check import HistoryCheck
from penstock_store import Connection, Database
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


async def test_a_job_that_cannot_be_published_holds_up_no_other(
    service: JobService, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = service._requester.send

    async def picky(kind: str, body: bytes, properties: BasicProperties) -> None:
        if b'"large"' in body:
            raise ContentTooLarge("the request is too large")
        if b'"full"' in body:
            raise QueueFull("the queue is full")
        await send(kind, body, properties)

    monkeypatch.setattr(service._requester, "send", picky)
    due = datetime.now(UTC) + timedelta(seconds=0.1)
    for number, name in enumerate(("large", "full", "small")):
        await service.submit(Fake(name, 0.0), at=due + timedelta(milliseconds=number))
    async with working(penstock.url):
        assert await end_of(service, "small") is JobState.DONE
    assert (await service.get("large")).error == "the request is too large"
    assert (await service.get("full")).state is JobState.SCHEDULED  # it is tried again


class Killed(BaseException):
    """Ends a scheduler as a kill does: nothing of it runs after this point."""


def killed_scheduler(
    service: JobService, step: str, monkeypatch: pytest.MonkeyPatch
) -> JobScheduler:
    send, remove = service._requester.send, service.schedules.remove_pending
    insert = service.schedules._insert

    async def dying_send(kind: str, body: bytes, properties: BasicProperties) -> None:
        if step != "claimed":
            await send(kind, body, properties)
        if step in ("claimed", "published"):
            raise Killed

    def dying_remove(ids: Sequence[str]) -> None:
        remove(ids)
        if step == "removed":
            raise Killed

    def dying_insert(connection: Connection, pending: PendingJob) -> None:
        insert(connection, pending)
        if step == "occurrence":
            raise Killed

    monkeypatch.setattr(service._requester, "send", dying_send)
    monkeypatch.setattr(service.schedules, "remove_pending", dying_remove)
    monkeypatch.setattr(service.schedules, "_insert", dying_insert)
    return JobScheduler(service._requester, service._repository, service.schedules)


@pytest.mark.parametrize("step", ["claimed", "published", "removed", "occurrence"])
async def test_a_scheduler_that_is_killed_at_any_step_loses_and_repeats_nothing(
    penstock: Penstock, embedded_template: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    clean(penstock.url)
    wait = {"type": "fake", "duration": 0}
    with copy_of(embedded_template) as url, Database(url) as database:
        jobs = JobRepository(database)
        schedules = ScheduleRepository(database, jobs)
        schedules.add_pending(workflow_jobs({"id": "c", "chain": [wait] * 2}, JobOptions()))
        schedules.add_schedule(JobSchedule("s", json.dumps(wait | {"id": "s"}).encode(), 86_400.0))
        database.execute("UPDATE job_schedule SET next_at = now()")
        async with asyncio.timeout(2 * PATIENCE), tapped(penstock.url, "fake") as tap:
            first = JobService(penstock.url, database)
            await first._requester.open()
            scheduler = killed_scheduler(first, step, monkeypatch)

            async def schedule() -> None:
                await asyncio.to_thread(first.schedules.start_occurrences)
                await scheduler.release()

            with pytest.raises(Killed):
                await schedule()
            await first._requester.close()
            database.execute("UPDATE job_pending SET claimed_at = NULL")  # its claim has expired
            plan = WorkerPlan(types=("fake",))
            worker = build_worker(penstock.url, plan, HistoryCheck(jobs))
            await worker.open()
            async with JobService(penstock.url, database) as service:
                assert await end_of(service, "c.2") is JobState.DONE
                await until(lambda: schedules.schedule("s").last_job is not None)
                occurrence = schedules.schedule("s").last_job or ""
                assert await end_of(service, occurrence) is JobState.DONE
            await worker.close()
        assert dict(tap.finals) == {"c.1": 1, "c.2": 1, occurrence: 1}
    clean(penstock.url)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_schedules_and_workflows_go_on_through_kills(
    penstock: Penstock, embedded_template: str, tmp_path: Path
) -> None:
    """Workers are killed at random, with the schedulers in them; another takes the place of each.
    The jobs of a killed scheduler start when its claims have expired."""
    clean(penstock.url)
    wait = {"type": "fake", "duration": 0.2, "interval": 0.1}
    kills, chance = 12, random.Random(21)
    with copy_of(embedded_template) as url, Database(url) as database:
        schedules = ScheduleRepository(database, JobRepository(database))
        group = {"id": "g", "group": [wait] * 30, "join": wait}
        for workflow in (group, {"id": "c", "chain": [wait] * 15}):
            schedules.add_pending(workflow_jobs(workflow, JobOptions()))
        for name in ("s1", "s2"):
            body = json.dumps(wait | {"id": name}).encode()
            schedules.add_schedule(JobSchedule(name, body, every=1.0))
        options = ("worker", "--type", "fake", "--database", url, "--fork", "2")

        def unfinished() -> int:
            states = [state.value for state in FINAL_STATES]
            found = database.rows("SELECT count(*) FROM job WHERE state <> ALL (%s)", (states,))
            return int(found[0]["count"])

        async with asyncio.timeout(10 * PATIENCE), tapped(penstock.url, "fake") as tap:
            workers = [WorkerProcess(penstock.url, tmp_path, *options).ready() for _ in range(2)]
            for kill in range(kills):
                enough = 4 * (kill + 1)
                await until(lambda enough=enough: tap.finals.total() >= enough)  # type: ignore[misc]
                which = chance.randrange(2)
                workers[which].kill()
                workers[which] = WorkerProcess(penstock.url, tmp_path, *options)
            for name in ("s1", "s2"):
                schedules.pause_schedule(name, paused=True)
            await until(lambda: unfinished() == 0)
            for worker in workers:
                assert worker.ready().stop() == 0, worker.log
        records = JobRepository(database).page(1, 1_000).records
    assert {record.state for record in records} == {JobState.DONE}
    assert len(records) > 46 + 2  # both workflows, and the schedules more than once
    assert tap.finals == Counter(record.id for record in records)
    clean(penstock.url)


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
