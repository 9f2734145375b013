"""A broker that is killed inside a commit: no answer is lost, and who goes by ids hears it once.

A broker writes the response before the acknowledgement, in other files. Killed between the two it
has the one without the other, hands out the request again, and the response is there twice: the
same, with the same message id. That is what is promised, here at every step of a commit.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pika
import pytest

from penstock_jobs.client import JobsClient
from penstock_jobs.formats import read_response
from penstock_jobs.model import Fake
from penstock_jobs.queue.properties import REPEATED, final_message_id
from penstock_jobs.queue.topology import response_name
from tests.integration.jobs.conftest import until
from tests.integration.jobs.running import PATIENCE, working
from tests.peers import Penstock

DYING = Path(__file__).parent / "dying"


class Mortal:
    """A broker that dies at a step of the first commit, and lives when it is started again."""

    def __init__(self, folder: Path, dies_at: int) -> None:
        self._log = folder / "steps"
        death = {"DIES_AT": str(dies_at), "DIES_LOG": str(self._log), "PYTHONPATH": str(DYING)}
        self.broker = Penstock(folder / "broker", environment=death)
        self.broker.start()

    async def died(self) -> None:
        process = self.broker._process
        assert process is not None
        await until(lambda: not process.running())

    async def revive(self) -> None:
        self.broker._environment = {}
        await asyncio.to_thread(self.broker.start)

    @property
    def steps(self) -> list[str]:
        return self._log.read_text().splitlines()


def responses(url: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """The final ones to the job, as they lie in the queue."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    found = []
    while (got := channel.basic_get(response_name("fake"), auto_ack=True))[0] is not None:
        if read_response(got[2])[0].final and b"mortal" in got[2]:
            found.append((got[1], got[2]))
    connection.close()
    return found


def others(step: int, copies: int) -> object:
    return pytest.param(step, copies, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("step", "copies"),
    [
        (0, 1),  # nothing is done
        others(1, 1),  # nothing is written
        others(2, 1),  # the client's queue has its copy
        (3, 2),  # all have theirs; the acknowledgement is missing
        others(4, 2),  # they are synced
        others(5, 2),  # the acknowledgement is about to be written
        (6, 1),  # it is written, and the worker has not heard of it
    ],
)
async def test_a_job_that_is_answered_as_the_broker_dies_ends_once_for_who_goes_by_ids(
    tmp_path: Path, step: int, copies: int
) -> None:
    mortal = Mortal(tmp_path, step)
    url = mortal.broker.url
    try:
        async with asyncio.timeout(3 * PATIENCE), JobsClient(url) as client:
            async with working(url, types=("fake",)) as worker:
                job = await client.submit(Fake("mortal", 0.5, 1))
                await mortal.died()
                await mortal.revive()
                heard = [response.final async for response in job]
                await (await client.submit(Fake("after", 0.1, 1))).result()
                assert worker.metrics.done == 2
        found = await asyncio.to_thread(responses, url)
    finally:
        mortal.broker.kill()

    assert len(mortal.steps) == step + 1
    assert heard.count(True) == 1
    assert len(found) == copies
    assert {said.message_id for said, _ in found} == {final_message_id("mortal", 1)}
    assert len({body for _, body in found}) == 1
    assert [REPEATED in said.headers for said, _ in found[1:]] == [True] * (copies - 1)


@pytest.mark.slow
async def test_another_worker_answers_under_the_same_id_if_the_first_dies_as_well(
    tmp_path: Path,
) -> None:
    mortal = Mortal(tmp_path, 3)
    url = mortal.broker.url
    try:
        async with asyncio.timeout(3 * PATIENCE), JobsClient(url) as client:
            async with working(url, types=("fake",)):
                job = await client.submit(Fake("mortal", 0.5, 1))
                await mortal.died()
            await mortal.revive()
            async with working(url, types=("fake",)):
                heard = [response.final async for response in job]
                await (await client.submit(Fake("after", 0.1, 1))).result()
        found = await asyncio.to_thread(responses, url)
    finally:
        mortal.broker.kill()

    assert heard.count(True) == 1
    assert len(found) == 2
    assert {said.message_id for said, _ in found} == {final_message_id("mortal", 1)}
