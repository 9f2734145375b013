"""Jobs over AMQP 1.0, on Penstock, on RabbitMQ 4, and on RabbitMQ 3 with its plugin.

The plugin knows queues as the Ichnaea clients declare them, and no streams: there, jobs are done
over 1.0 in compatible queues, and nothing is cancelled that way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pika
import pytest

from penstock.client.amqp10.connection import Amqp10ClientConnection
from penstock.core.errors import NotFound, PreconditionFailed
from penstock_jobs.client import JobsClient
from penstock_jobs.errors import JobFailed
from penstock_jobs.formats import MessageFormat, read_response
from penstock_jobs.history.recorder import JobRecorder
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import Fake, FunctionCall, JobOptions, JobState
from penstock_jobs.queue.topology import Durability
from penstock_jobs.service import JobService
from penstock_jobs.worker.worker import WorkerSettings
from penstock_store import Database
from tests.databases import copy_of
from tests.integration.jobs.conftest import until
from tests.integration.jobs.running import PATIENCE, SAMPLES, clean, tapped, working
from tests.peers import Broker, Penstock, RabbitMQ

_ALSO = [pytest.mark.peer, pytest.mark.slow]


def over_1_0(broker: Broker) -> str:
    return broker.url.replace("amqp://", "amqp+1.0://")


@pytest.fixture(
    scope="session",
    params=[
        "penstock",
        pytest.param("plugged_rabbitmq", marks=_ALSO, id="rabbitmq"),
        pytest.param("new_rabbitmq", marks=_ALSO, id="rabbitmq-4"),
    ],
)
def speaking(request: pytest.FixtureRequest) -> Broker:
    server: Broker = request.getfixturevalue(request.param)
    return server


@pytest.fixture(
    scope="session",
    params=["penstock", pytest.param("new_rabbitmq", marks=_ALSO, id="rabbitmq-4")],
)
def complete(request: pytest.FixtureRequest) -> Broker:
    """With streams and durable queues over 1.0."""
    server: Broker = request.getfixturevalue(request.param)
    return server


@pytest.fixture
async def declared(speaking: Broker, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """A broker where 0-9-1 has declared what 1.0 cannot."""
    plugged = request.node.callspec.params["speaking"] == "plugged_rabbitmq"
    kept = Durability.ICHNAEA if plugged else Durability.DURABLE
    clean(speaking.url)
    async with asyncio.timeout(2 * PATIENCE):
        async with tapped(speaking.url, "call", kept), tapped(speaking.url, "fake", kept):
            yield speaking
    clean(speaking.url)


@pytest.fixture(params=["amqp://", "amqp+1.0://"], ids=["0-9-1", "1.0"])
async def client(declared: Broker, request: pytest.FixtureRequest) -> AsyncIterator[JobsClient]:
    async with JobsClient(declared.url.replace("amqp://", request.param)) as opened:
        yield opened


async def test_a_worker_over_1_0_answers_whichever_way_it_was_asked(
    declared: Broker, client: JobsClient
) -> None:
    async with working(over_1_0(declared), types=("call", "fake")):
        answers = [
            await client.submit(FunctionCall("add", f"{SAMPLES}:add", (4, 4))),
            await client.submit(Fake("fake", 0.2, 0.1)),
        ]
        failing = await client.submit(
            FunctionCall("fail", f"{SAMPLES}:fail"), JobOptions(attempts=1)
        )

        values = [(await job.result()).value for job in answers]
        with pytest.raises(JobFailed, match="as asked"):
            await failing.result()

    assert values == [8, None]


async def test_a_worker_over_0_9_1_answers_who_asks_over_1_0(complete: Broker) -> None:
    """RabbitMQ's plugin does not: it keeps headers from those who speak 0-9-1."""
    clean(complete.url)
    async with asyncio.timeout(PATIENCE), working(complete.url, types=("fake",)):
        async with JobsClient(over_1_0(complete)) as client:
            job = await client.submit(Fake("crossing", 0.4, 0.1))
            heard = [response.progress async for response in job]
    clean(complete.url)

    assert heard[-1] == 1.0
    assert len(heard) > 1
    assert heard == sorted(heard)


async def test_work_goes_on_after_all_places_were_taken(
    declared: Broker, client: JobsClient
) -> None:
    async with working(over_1_0(declared), types=("call", "fake"), slots=1):
        long = await client.submit(Fake("long", 1.0, 0.2))
        short = [
            await client.submit(FunctionCall(f"add-{number}", f"{SAMPLES}:add", (number, 1)))
            for number in range(5)
        ]

        values = [(await job.result()).value for job in short]
        await long.result()
        again = await client.submit(FunctionCall("again", f"{SAMPLES}:add", (1, 1)))

        assert (await again.result()).value == 2
    assert values == [1, 2, 3, 4, 5]


async def test_the_history_is_recorded_over_1_0(complete: Broker, embedded_template: str) -> None:
    clean(complete.url)
    url = over_1_0(complete)
    with copy_of(embedded_template) as address, Database(address) as database:
        repository = JobRepository(database)
        recorder = JobRecorder(url, repository)
        await recorder.open()
        async with asyncio.timeout(PATIENCE), working(url, types=("fake",)):
            async with JobsClient(url) as client:
                await (await client.submit(Fake("recorded", 0.3, 0.1))).result()
            await until(lambda: repository.known(["recorded"])["recorded"][1] is JobState.DONE)
        await recorder.close()
        states = [event.state for event in repository.events("recorded")]
    clean(complete.url)
    assert states == [JobState.WAITING, JobState.RUNNING, JobState.DONE]


async def test_jobs_are_submitted_retried_and_scheduled_over_1_0(
    complete: Broker, embedded_template: str
) -> None:
    """As the HTTP API and the pages do it, with a broker URL of AMQP 1.0."""
    clean(complete.url)
    url = over_1_0(complete)
    add = f"{SAMPLES}:add"
    group = [{"type": "call", "function": add, "arguments": [n, n]} for n in range(3)]
    with copy_of(embedded_template) as address, Database(address) as database:
        async with asyncio.timeout(2 * PATIENCE), JobService(url, database) as jobs:
            await jobs.submit(FunctionCall("waits", add, (1, 1)))
            await jobs.cancel("waits")
            async with working(url, types=("call",), attempts=1):
                await jobs.submit(FunctionCall("bad", f"{SAMPLES}:fail"), JobOptions(priority=5))
                assert await end_of(jobs, "waits") is JobState.CANCELLED
                assert await end_of(jobs, "bad") is JobState.FAILED
                dead = [(each.id, text) for each, text in await jobs._requester.dead()]
                assert dead == [("bad", "RuntimeError: as asked")]
                assert await jobs.replay(["none"]) == 0
                assert await jobs.replay() == 1
                await until(lambda: JobRepository(database).run("bad") == 2)
                assert await end_of(jobs, "bad") is JobState.FAILED
                await jobs.retry("waits")
                assert await end_of(jobs, "waits") is JobState.DONE
                await jobs.submit_workflow({"id": "g", "group": group})
                assert await end_of(jobs, "g.3") is JobState.DONE
            assert (await jobs.result("g.3")).value == 4
            assert (await jobs.get("bad")).priority == 5
    clean(complete.url)


async def end_of(jobs: JobService, identity: str) -> JobState:
    async for record in jobs.watch(identity):
        state = record.state
    return state


async def test_the_highest_priority_is_first_over_1_0(complete: Broker) -> None:
    clean(complete.url)
    url = over_1_0(complete)
    async with asyncio.timeout(PATIENCE), JobsClient(url) as client:
        low, high = [
            await client.submit(FunctionCall(f"p{number}", f"{SAMPLES}:moment"), JobOptions(number))
            for number in (1, 9)
        ]
        async with working(url, types=("call",)):
            times = [float(str((await job.result()).value)) for job in (low, high)]
    clean(complete.url)
    assert times[0] > times[1]


async def test_what_runs_is_cancelled_over_1_0(complete: Broker) -> None:
    clean(complete.url)
    async with asyncio.timeout(PATIENCE), tapped(complete.url, "fake"):
        async with working(over_1_0(complete), types=("fake",)):
            async with JobsClient(over_1_0(complete)) as client:
                job = await client.submit(Fake("endless", 600, 0.1))
                await anext(aiter(job))
                await job.cancel()
                with pytest.raises(JobFailed, match="cancelled"):
                    await job.result()
    clean(complete.url)


@pytest.mark.peer
@pytest.mark.slow
async def test_a_queue_that_a_broker_does_not_give_over_1_0_is_named(
    plugged_rabbitmq: RabbitMQ,
) -> None:
    clean(plugged_rabbitmq.url)
    async with tapped(plugged_rabbitmq.url, "fake"):
        with pytest.raises(PreconditionFailed, match="declare it with --compatible"):
            async with working(over_1_0(plugged_rabbitmq), types=("fake",)):
                pass
    clean(plugged_rabbitmq.url)


async def test_that_nobody_has_declared_anything_is_told(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a broker that does not speak 0-9-1 beside 1.0; others are told what to declare."""
    clean(penstock.url)

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr("penstock_jobs.queue.amqp10.declare_over_amqp091", nothing)

    with pytest.raises(NotFound, match=r"penstock\.jobs\.responses"):
        async with JobsClient(over_1_0(penstock)):
            pass


async def test_the_addresses_of_rabbitmq_4_are_used_where_it_answers(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Penstock has them, too, so it can stand in."""
    monkeypatch.setattr(Amqp10ClientConnection, "is_rabbitmq_4", True)
    clean(penstock.url)
    url = over_1_0(penstock)
    async with asyncio.timeout(PATIENCE), JobsClient(url) as client:
        waits = await client.submit(FunctionCall("waits", f"{SAMPLES}:add", (1, 1)))
        await waits.cancel()
        async with working(url, types=("call",), attempts=2):
            added = await client.submit(FunctionCall("add", f"{SAMPLES}:add", (4, 4)))
            failing = await client.submit(FunctionCall("fail", f"{SAMPLES}:fail"))
            assert (await added.result()).value == 8
            with pytest.raises(JobFailed, match="as asked"):
                await failing.result()
            with pytest.raises(JobFailed, match="cancelled"):
                await waits.result()
    clean(penstock.url)


@pytest.mark.parametrize("scheme", ["amqp", "amqp+1.0"])
async def test_responses_to_another_exchange_reach_its_queues_and_everybody_else(
    complete: Broker, scheme: str
) -> None:
    """Requesters and the history are bound to the exchange of the type."""
    clean(complete.url)
    url = complete.url.replace("amqp", scheme, 1)
    settings = WorkerSettings(1, response_exchange="site.responses", name="other")
    queues = ("site.a", "site.b")
    async with asyncio.timeout(PATIENCE), tapped(complete.url, "fake") as tap:
        async with (
            working(url, types=("fake",), settings=settings, response_queues=queues),
            JobsClient(url) as client,
        ):
            await (await client.submit(Fake("bound", 0.0), form=MessageFormat.XML)).result()
            await until(lambda: tap.finals["bound"] == 1)
    connection = pika.BlockingConnection(pika.URLParameters(complete.url))
    channel = connection.channel()
    found = [channel.basic_get(queue, auto_ack=True)[2] for queue in queues]
    for queue in queues:
        channel.queue_delete(queue)
    channel.exchange_delete("site.responses")
    connection.close()
    assert [read_response(body)[0].id for body in found] == ["bound", "bound"]
    clean(complete.url)
