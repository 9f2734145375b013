"""What became of jobs: kept in PostgreSQL, watched as it happens, there after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.core.basic_properties import BasicProperties
from penstock.core.errors import NotFound, PreconditionFailed
from penstock_jobs.client import JobsClient
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import CommandRun, Fake, FunctionCall, JobOptions, JobRecord, JobState
from penstock_jobs.queue.properties import read_request_properties
from penstock_jobs.service import JobService
from penstock_jobs.worker.factory import WorkerPlan, build_worker
from penstock_jobs.worker.history_check import AttemptLocks, HistoryCheck, attempt_lock_key
from penstock_store import Database
from tests.databases import copy_of
from tests.integration.jobs.conftest import until
from tests.integration.jobs.running import PATIENCE, SAMPLES, clean, tapped, working
from tests.peers import Penstock


@pytest.fixture
def jobs_url(penstock: Penstock) -> Iterator[str]:
    """One broker is enough here: what differs between brokers is tested elsewhere."""
    clean(penstock.url)
    yield penstock.url
    clean(penstock.url)


@pytest.fixture
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as opened:
        yield opened


@pytest.fixture
async def jobs(jobs_url: str, database: Database) -> AsyncIterator[JobService]:
    async with asyncio.timeout(2 * PATIENCE):
        async with JobService(jobs_url, database) as opened:
            yield opened


async def ended(jobs: JobService, identity: str) -> list[JobRecord]:
    return [record async for record in jobs.watch(identity)]


async def test_a_job_is_followed_from_its_submission_to_its_result(
    jobs_url: str, jobs: JobService
) -> None:
    await jobs.submit(Fake("f", 0.6, 0.2), JobOptions(priority=3))
    assert (await jobs.get("f")).state is JobState.WAITING

    watching = asyncio.create_task(ended(jobs, "f"))
    async with working(jobs_url) as worker:
        records = await watching

    assert [record.revision for record in records] == sorted({r.revision for r in records})
    last = records[-1]
    assert (last.state, last.progress, last.attempts) == (JobState.DONE, 1.0, 1)
    assert (last.worker, last.priority) == (worker.name, 3)
    assert last.start is not None
    assert last.end is not None
    assert JobState.RUNNING in {record.state for record in records}
    assert [event.state for event in await jobs.events("f")] == ["waiting", "running", "done"]
    assert (await jobs.result("f")).progress == 1.0
    assert await jobs.request("f") == Fake("f", 0.6, 0.2)


async def test_an_id_is_used_once(jobs: JobService) -> None:
    await jobs.submit(Fake("once", 0))

    with pytest.raises(PreconditionFailed, match="'once' exists already"):
        await jobs.submit(Fake("once", 1))


async def test_what_is_not_there_is_not_found(jobs: JobService) -> None:
    with pytest.raises(NotFound):
        await jobs.get("nowhere")
    await jobs.submit(Fake("early", 0))
    with pytest.raises(NotFound, match="it is waiting"):
        await jobs.result("early")


async def test_a_failed_job_lies_with_the_dead_and_can_be_tried_again(
    jobs_url: str, jobs: JobService
) -> None:
    async with working(jobs_url, attempts=2):
        await jobs.submit(FunctionCall("bad", f"{SAMPLES}:fail"))
        records = await ended(jobs, "bad")

        assert records[-1].state is JobState.FAILED
        assert records[-1].error == "RuntimeError: as asked"
        states = [event.state for event in await jobs.events("bad")]
        assert [state for state in states if state != "running"] == [
            "waiting",
            "retrying",
            "failed",
        ]
        assert [record.id for record in (await jobs.dead()).records] == ["bad"]

        assert not (await jobs.retry("bad")).state.final
        assert (await ended(jobs, "bad"))[-1].state is JobState.FAILED
        with pytest.raises(PreconditionFailed):
            await jobs.cancel("bad")


async def test_a_cancelled_job_can_be_asked_for_again(jobs_url: str, jobs: JobService) -> None:
    await jobs.submit(FunctionCall("c", f"{SAMPLES}:add", (1, 2)))
    await jobs.cancel("c")
    async with working(jobs_url):
        assert (await ended(jobs, "c"))[-1].state is JobState.CANCELLED

        await jobs.retry("c")

        assert (await ended(jobs, "c"))[-1].state is JobState.DONE
    assert (await jobs.result("c")).value == 3


async def test_a_cancelled_job_that_is_asked_for_again_has_its_options(
    jobs_url: str, jobs: JobService, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = JobOptions(3, attempts=2, soft=20.0, hard=30.0, keep=86_400.0, unique="key")
    given: list[JobOptions] = []
    send = jobs._requester.send

    async def seen(kind: str, body: bytes, properties: BasicProperties) -> None:
        given.append(read_request_properties(properties).options)
        await send(kind, body, properties)

    for at in (None, datetime.now(UTC) + timedelta(hours=1)):
        name = "now" if at is None else "later"
        await jobs.submit(Fake(name, 0), options, at=at)
        await jobs.cancel(name)
        async with working(jobs_url):
            assert (await ended(jobs, name))[-1].state is JobState.CANCELLED
            with monkeypatch.context() as patch:
                patch.setattr(jobs._requester, "send", seen)
                await jobs.retry(name)
            assert (await ended(jobs, name))[-1].state is JobState.DONE
    assert given == [options, options]


async def test_jobs_are_listed_by_page_state_and_kind(jobs_url: str, jobs: JobService) -> None:
    for number in range(5):
        await jobs.submit(Fake(f"f{number}", 0))
    await jobs.submit(FunctionCall("waits", f"{SAMPLES}:nothing"))
    async with working(jobs_url, types=("fake",)):
        for number in range(5):
            await ended(jobs, f"f{number}")

    first, second = await jobs.list(1, 4), await jobs.list(2, 4)

    assert (first.total, len(first.records), len(second.records)) == (6, 4, 2)
    assert [r.id for r in first.records] == ["waits", "f4", "f3", "f2"]
    assert [r.id for r in (await jobs.list(state=JobState.WAITING)).records] == ["waits"]
    assert (await jobs.list(kind="fake")).total == 5
    assert (await jobs.list(text="f3")).total == 1
    assert (await jobs.counts())[JobState.DONE] == 5


async def test_everything_that_happens_can_be_watched_and_taken_up_again(
    jobs_url: str, jobs: JobService
) -> None:
    await jobs.submit(Fake("a", 0))
    seen = (await jobs.get("a")).revision
    async with working(jobs_url):
        await jobs.submit(Fake("b", 0))
        await ended(jobs, "a")
        await ended(jobs, "b")

    final = set()
    async for record in jobs.watch_all(after=seen):
        final |= {record.id} if record.state.final else set()
        if final == {"a", "b"}:
            break


async def test_history_is_there_for_the_next_and_has_what_happened_meanwhile(
    jobs_url: str, database: Database
) -> None:
    async with JobService(jobs_url, database) as jobs:
        await jobs.submit(Fake("over", 0))
    async with working(jobs_url) as worker:
        await until(lambda: worker.metrics.done == 1)

    async with asyncio.timeout(PATIENCE), JobService(jobs_url, database) as jobs:
        assert (await ended(jobs, "over"))[-1].state is JobState.DONE


async def test_a_worker_with_the_history_answers_nothing_twice(
    jobs_url: str, jobs: JobService, database: Database
) -> None:
    request = CommandRun("twice", ("/bin/true",))
    async with working(jobs_url, programs=("/bin/true",)):
        await jobs.submit(request)
        await ended(jobs, "twice")
    worker = build_worker(
        jobs_url, WorkerPlan(programs=("/bin/true",)), HistoryCheck(JobRepository(database))
    )
    await worker.open()
    async with tapped(jobs_url, "command") as tap:
        async with JobsClient(jobs_url) as client:
            await client.submit(request)
            await until(lambda: worker.metrics.copies == 1)
            other = await client.submit(CommandRun("twice", ("/bin/true", "x")))
            answer = await other.result(raises=False)
    await worker.close()

    assert answer.error == "the id 'twice' belongs to another request"
    assert (worker.metrics.done, tap.finals["twice"]) == (0, 1)


async def test_of_two_workers_with_the_history_one_is_at_a_request(
    jobs_url: str, database: Database, tmp_path: Path
) -> None:
    """The copy of a request that another worker is at is acknowledged, and not begun."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    program = f"echo x >> {begun}; until test -e {go}; do sleep 0.1; done"
    request = CommandRun("shared", ("/bin/sh", "-c", program))
    plan = WorkerPlan(programs=("/bin/sh",))
    workers = [
        build_worker(jobs_url, plan, HistoryCheck(JobRepository(database))) for _ in range(2)
    ]
    async with tapped(jobs_url, "command") as tap, JobsClient(jobs_url) as client:
        for worker in workers:
            await worker.open()
        await client.submit(request)
        await until(begun.exists)
        await client.submit(request)
        await until(lambda: sum(worker.metrics.copies for worker in workers) == 1)
        go.touch()
        await until(lambda: tap.finals["shared"] == 1)
        await client.submit(request)  # and when it is done, it is known at once
        await until(lambda: sum(worker.metrics.copies for worker in workers) == 2)
        for worker in workers:
            await worker.close()
    assert begun.read_text() == "x\n"
    assert tap.finals["shared"] == 1


async def test_the_claims_of_a_worker_end_with_it(database: Database) -> None:
    one, other = AttemptLocks(database.url), AttemptLocks(database.url)
    keys = [attempt_lock_key("a", 1, 1), attempt_lock_key("a", 1, 2), attempt_lock_key("b", 1, 1)]
    assert one.acquire(keys[:2]) == set(keys[:2])
    assert other.acquire(keys) == {keys[2]}
    one.release(keys[:1])
    assert other.acquire(keys[:2]) == {keys[0]}
    one.close()
    await until(lambda: other.acquire(keys[1:2]) == {keys[1]})
    other.close()
