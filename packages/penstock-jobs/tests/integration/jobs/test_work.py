"""Jobs from a client to a worker and back: what comes of them, and of those that fail."""

from __future__ import annotations

import asyncio
import sys

import pytest

from penstock_jobs.client import JobsClient
from penstock_jobs.errors import JobFailed
from penstock_jobs.formats import MessageFormat
from penstock_jobs.model import CommandRun, Fake, FunctionCall, JobOptions
from penstock_jobs.queue.requester import job_requester
from tests.integration.jobs.conftest import until
from tests.integration.jobs.running import SAMPLES, tapped, working


async def test_a_function_is_called_and_what_it_returns_comes_back(
    jobs_url: str, client: JobsClient
) -> None:
    async with working(jobs_url):
        job = await client.submit(FunctionCall("sum", f"{SAMPLES}:add", (2, 3.5)))

        assert (await job.result()).value == 5.5


@pytest.mark.parametrize("form", [MessageFormat.JSON, MessageFormat.XML])
async def test_progress_is_told_on_the_way_and_the_end_last(
    jobs_url: str, client: JobsClient, form: MessageFormat
) -> None:
    async with working(jobs_url):
        job = await client.submit(Fake("slow", 0.5, 0.1), form=form)

        responses = [response async for response in job]

    told = [response.progress for response in responses]
    assert told == sorted(told)
    assert told[0] == 0.0
    assert told[-1] == 1.0
    assert len(told) == 6
    assert all(each.end is not None and each.start is not None for each in responses)


async def test_a_command_runs_with_its_files_and_its_output_is_kept(
    jobs_url: str, client: JobsClient
) -> None:
    program = "import sys; print(open('in.txt').read()); print('!', file=sys.stderr)"
    async with working(jobs_url, programs=(sys.executable,)):
        request = CommandRun("c", (sys.executable, "-c", program), {"in.txt": b"from a file"})
        response = await (await client.submit(request)).result()

    assert response.value == {"status": 0, "output": "from a file\n", "errors": "!\n"}


async def test_what_is_not_allowed_is_refused_and_not_tried_again(
    jobs_url: str, client: JobsClient
) -> None:
    async with working(jobs_url, programs=("/bin/true",)) as worker:
        for request in (FunctionCall("1", "os:getcwd"), CommandRun("2", ("/bin/false",))):
            with pytest.raises(JobFailed, match="is not allowed on this worker"):
                await (await client.submit(request)).result()

    assert worker.metrics.retried == 0


async def test_what_fails_is_tried_again_and_ends_with_the_dead_letters(
    jobs_url: str, client: JobsClient
) -> None:
    requester = job_requester(jobs_url)
    await requester.open()
    async with working(jobs_url, attempts=2) as worker:
        job = await client.submit(FunctionCall("bad", f"{SAMPLES}:fail", ("no luck",)))

        with pytest.raises(JobFailed, match="RuntimeError: no luck"):
            await job.result()

        assert (worker.metrics.retried, worker.metrics.failed) == (1, 1)
        [(request, error)] = await requester.dead(["call"])
        assert (request.id, error) == ("bad", "RuntimeError: no luck")

        async with tapped(jobs_url, "call") as tap:
            assert await requester.replay() == ["bad"]
            await until(lambda: tap.finals["bad"] == 1)
        assert worker.metrics.failed == 2
    await requester.close()


async def test_how_often_it_is_tried_can_be_asked_for(jobs_url: str, client: JobsClient) -> None:
    async with working(jobs_url, attempts=5) as worker:
        job = await client.submit(FunctionCall("once", f"{SAMPLES}:fail"), JobOptions(attempts=1))
        with pytest.raises(JobFailed):
            await job.result()

    assert worker.metrics.retried == 0


@pytest.mark.parametrize(
    "options",
    [JobOptions(attempts=1, soft=0.3), JobOptions(attempts=1, hard=0.3)],
    ids=["soft", "hard"],
)
@pytest.mark.parametrize(
    "request_",
    [
        FunctionCall("call", f"{SAMPLES}:take", (600,)),
        Fake("fake", 600),
        CommandRun("command", ("/bin/sleep", "600")),
    ],
    ids=lambda request: request.type,
)
async def test_work_that_takes_too_long_is_ended(
    jobs_url: str,
    client: JobsClient,
    request_: FunctionCall | Fake | CommandRun,
    options: JobOptions,
) -> None:
    async with working(jobs_url, programs=("/bin/sleep",)):
        job = await client.submit(request_, options)

        with pytest.raises(JobFailed, match=r"ended after 0.3 seconds"):
            await job.result()

        after = await client.submit(FunctionCall("after", f"{SAMPLES}:add", (1, 1)))
        assert (await after.result()).value == 2


async def test_running_and_waiting_work_is_cancelled(jobs_url: str, client: JobsClient) -> None:
    async with working(jobs_url) as worker:
        running = await client.submit(FunctionCall("running", f"{SAMPLES}:take", (600,)))
        await anext(aiter(running))
        waiting = await client.submit(FunctionCall("waiting", f"{SAMPLES}:take", (600,)))

        await waiting.cancel()
        await running.cancel()

        for job in (running, waiting):
            assert (await job.result(raises=False)).error == "it was cancelled"
        assert worker.metrics.cancelled == 2


async def test_a_worker_that_comes_later_knows_what_was_cancelled(
    jobs_url: str, client: JobsClient
) -> None:
    job = await client.submit(FunctionCall("unwanted", f"{SAMPLES}:take", (600,)))
    await job.cancel()

    async with working(jobs_url):
        assert (await job.result(raises=False)).error == "it was cancelled"


async def test_the_highest_priority_is_done_first(jobs_url: str, client: JobsClient) -> None:
    async with tapped(jobs_url, "call") as tap:
        for number in (1, 5, 9):
            await client.submit(
                FunctionCall(f"p{number}", f"{SAMPLES}:nothing"), JobOptions(priority=number)
            )
        async with working(jobs_url):
            await until(lambda: tap.finals.total() == 3)

    assert [each.id for each in tap.responses if each.final] == ["p9", "p5", "p1"]


async def test_the_same_request_twice_is_answered_once(jobs_url: str, client: JobsClient) -> None:
    async with tapped(jobs_url, "call") as tap, working(jobs_url) as worker:
        for _ in range(2):
            await client.submit(FunctionCall("twin", f"{SAMPLES}:take", (0.3,)))
        await until(lambda: worker.metrics.copies == 1 and tap.finals["twin"] == 1)
        await (await client.submit(FunctionCall("last", f"{SAMPLES}:nothing"))).result()

    assert tap.finals["twin"] == 1


async def test_a_process_that_dies_fails_one_attempt_and_no_other(
    jobs_url: str, client: JobsClient
) -> None:
    async with working(jobs_url, slots=2, functions=(SAMPLES, "os:_exit")) as worker:
        dying = await client.submit(FunctionCall("dying", "os:_exit", (1,)), JobOptions(attempts=1))
        others = [
            await client.submit(FunctionCall(f"o{n}", f"{SAMPLES}:nothing")) for n in range(20)
        ]

        with pytest.raises(JobFailed, match="its process ended"):
            await dying.result()
        for other in others:
            await other.result()

    assert worker.metrics.failed == 1


async def test_processes_are_replaced_after_their_share(jobs_url: str, client: JobsClient) -> None:
    async with working(jobs_url, recycle=3, functions=("os:getpid",)):
        pids = [
            (await (await client.submit(FunctionCall(f"{n}", "os:getpid"))).result()).value
            for n in range(9)
        ]

    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]


async def test_a_worker_that_stops_hands_back_what_it_has(
    jobs_url: str, client: JobsClient
) -> None:
    job = await client.submit(FunctionCall("passed on", f"{SAMPLES}:take", (1.0,)))
    async with tapped(jobs_url, "call") as tap:
        async with working(jobs_url, grace=0.0) as first:
            await until(lambda: first.metrics.running == 1)
        async with working(jobs_url) as second:
            await job.result()

    assert (first.metrics.done, first.metrics.returned) == (0, 1)
    assert (second.metrics.done, tap.finals["passed on"]) == (1, 1)


async def test_a_worker_that_stops_finishes_what_it_may(jobs_url: str, client: JobsClient) -> None:
    async with working(jobs_url, grace=60.0) as worker:
        job = await client.submit(FunctionCall("finished", f"{SAMPLES}:take", (0.5,)))
        await anext(aiter(job))  # it has begun

    assert (await job.result()).progress == 1.0
    assert worker.metrics.done == 1


async def test_short_work_behind_long_work_goes_to_whoever_is_free(
    jobs_url: str, client: JobsClient
) -> None:
    async with working(jobs_url):
        short = [
            await client.submit(FunctionCall(f"s{n}", f"{SAMPLES}:nothing")) for n in range(100)
        ]
        await asyncio.gather(*(job.result() for job in short))  # it takes many at a time now
        long = await client.submit(FunctionCall("long", f"{SAMPLES}:take", (600,)))
        await anext(aiter(long))
        behind = [
            await client.submit(FunctionCall(f"b{n}", f"{SAMPLES}:nothing")) for n in range(20)
        ]

        async with working(jobs_url) as free:
            await asyncio.gather(*(job.result() for job in behind))

        assert free.metrics.done == 20


async def test_many_short_ones_are_all_answered_once(jobs_url: str, client: JobsClient) -> None:
    async with tapped(jobs_url, "call") as tap, working(jobs_url, slots=2):
        count = 1_000
        await asyncio.gather(
            *(client.submit(FunctionCall(f"n{n}", f"{SAMPLES}:nothing")) for n in range(count))
        )
        await until(lambda: len(tap.finals) == count)

    assert set(tap.finals.values()) == {1}
