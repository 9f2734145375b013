"""Spans of jobs: from the requester to the worker and to the response."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pika
import pytest

from penstock.core.trace_context import trace_id_of
from penstock_jobs.client import JobsClient
from penstock_jobs.errors import JobFailed
from penstock_jobs.formats import write_request
from penstock_jobs.model import Fake, FunctionCall, JobOptions
from penstock_jobs.queue.topology import RESPONSES, request_name, response_name
from penstock_jobs.service import JobService
from penstock_store import Database
from tests.collector import SpanCollector
from tests.databases import copy_of
from tests.integration.jobs.running import PATIENCE, SAMPLES, clean, working
from tests.peers import Penstock

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.fixture
def url(penstock: Penstock) -> str:
    clean(penstock.url)
    return penstock.url


async def test_a_job_and_its_retry_are_one_trace(telemetry: SpanCollector, url: str) -> None:
    async with working(url, attempts=2), JobsClient(url) as client:
        job = await client.submit(FunctionCall("f", f"{SAMPLES}:fail", ("no",)))
        with pytest.raises(JobFailed):
            await job.result()
    telemetry.flush()
    exchange, responses = request_name("call"), response_name("call")
    submit, process, respond, receive = telemetry.wait_for(
        f"publish {exchange}", f"process {exchange}", f"publish {responses}", f"receive {RESPONSES}"
    )
    attempts = [span for span in telemetry.spans if span.name == process.name]
    assert [span.attributes["penstock.job.attempt"] for span in attempts] == [1, 2]
    assert {span.parent for span in attempts} == {submit.id}
    assert all("no" in span.error for span in attempts)
    assert process.attributes["penstock.job.id"] == "f"
    final = next(span for span in telemetry.spans if span.parent == attempts[1].id)
    assert final.kind == "PRODUCER"
    assert {respond.trace, receive.trace, process.trace} == {submit.trace}


async def test_a_request_of_another_program_and_its_response(
    telemetry: SpanCollector, url: str
) -> None:
    def ask() -> str:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(queue, response_name("fake"), "me")
            properties = pika.BasicProperties(reply_to="me", headers={"traceparent": PARENT})
            request = write_request(Fake("1", 0.0, 0.1))
            channel.basic_publish(request_name("fake"), "", request.body, properties)
            for _, answer, _ in channel.consume(queue, inactivity_timeout=PATIENCE):
                assert answer is not None
                if answer.headers["job-state"] == "done":
                    return str(answer.headers["traceparent"])
        raise AssertionError("no response")

    async with working(url):
        traceparent = await asyncio.to_thread(ask)
    process, respond = telemetry.wait_for(
        f"process {request_name('fake')}", f"publish {response_name('fake')}"
    )
    assert process.parent == "cd" * 8
    assert traceparent == f"00-{'ab' * 16}-{respond.id}-01"
    assert trace_id_of(traceparent) == process.trace


async def test_a_workflow_is_one_trace(
    telemetry: SpanCollector, url: str, embedded_template: str, tmp_path: Path
) -> None:
    chain = [
        {"type": "call", "function": f"{SAMPLES}:add", "arguments": [1, 2]},
        {"type": "call", "function": f"{SAMPLES}:add", "arguments": [3, 4]},
    ]
    with copy_of(embedded_template) as database_url, Database(database_url) as database:
        async with asyncio.timeout(2 * PATIENCE), JobService(url, database) as service:
            async with working(url):
                *_, last = await service.submit_workflow(
                    {"id": "c", "chain": chain}, JobOptions(priority=3)
                )
                async for record in service.watch(last):
                    if record.state.final:
                        break
    clean(url)
    telemetry.flush()
    schedule, process = telemetry.wait_for("schedule workflow", f"process {request_name('call')}")
    steps = [span for span in telemetry.spans if span.name == process.name]
    assert len(steps) == 2
    assert {span.trace for span in steps} == {schedule.trace}
