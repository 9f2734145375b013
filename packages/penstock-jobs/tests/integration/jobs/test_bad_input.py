"""What comes from strangers: refused with an error response, and nothing of it is begun."""

from __future__ import annotations

import io
import zipfile

import pytest

from penstock.client.amqp091.connection import connect
from penstock.core.basic_properties import BasicProperties
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_jobs.client import JobsClient
from penstock_jobs.errors import JobFailed
from penstock_jobs.formats import MessageFormat
from penstock_jobs.model import Fake, FunctionCall, JobResponse, PredictModels
from penstock_jobs.queue.topology import request_name
from tests.integration.jobs.conftest import until
from tests.integration.jobs.running import SAMPLES, tapped, working

BOMB = (
    b'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    b'<request id="1" type="fake">&b;</request>'
)
FOREIGN = b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><request id="&x;" type="fake"/>'


async def answer(url: str, kind: str, body: bytes, said: BasicProperties) -> JobResponse:
    """The final response to a message as it is."""
    async with tapped(url, kind) as tap:
        connection = await connect(parse_amqp_url(url), "stranger")
        channel = await connection.channel()
        channel.publish(request_name(kind), "", body, said)
        await until(lambda: tap.finals.total() == 1)
        await connection.close()
        return tap.responses[-1]


@pytest.mark.parametrize(
    ("body", "said", "what"),
    [
        (BOMB, BasicProperties("text/xml"), "document types are not accepted"),
        (FOREIGN, BasicProperties("text/xml"), "document types are not accepted"),
        (b"<request", BasicProperties("text/xml"), "line 1"),
        (b"", BasicProperties("text/xml"), "neither XML"),
        (b"--a\r\n\r\nx\r\n--b--", BasicProperties("multipart/mixed"), ""),
        (b"{", BasicProperties("application/json"), "JSON"),
        (b'{"id":"1","type":"bake"}', BasicProperties("application/json"), "bake"),
        (b'{"id":"1","type":"fake","surprise":1}', BasicProperties("application/json"), "surprise"),
        (b'{"id":"1","type":"call","function":"x"}', BasicProperties(), "function"),
        (b'{"id":"1","type":"fake"}', BasicProperties(headers={"job-hard": "soon"}), "job option"),
    ],
    ids=["bomb", "foreign", "cut", "empty", "boundary", "json", "type", "name", "where", "option"],
)
async def test_what_cannot_be_understood_is_answered(
    jobs_url: str, body: bytes, said: BasicProperties, what: str
) -> None:
    async with working(jobs_url) as worker:
        asked = BasicProperties(said.content_type, said.headers, reply_to="stranger")
        response = await answer(jobs_url, "fake", body, asked)

    assert (response.id, response.progress) in (("stranger", 1.0), ("1", 1.0))
    assert response.error
    assert what in response.error
    assert (worker.metrics.refused, worker.metrics.done) == (1, 0)


async def test_an_id_that_is_taken_is_refused_and_the_first_goes_on(
    jobs_url: str, client: JobsClient
) -> None:
    async with tapped(jobs_url, "call") as tap, working(jobs_url, slots=2) as worker:
        first = await client.submit(FunctionCall("same", f"{SAMPLES}:take", (0.5,)))
        await anext(aiter(first))
        await client.submit(FunctionCall("same", f"{SAMPLES}:fail"))
        await until(lambda: worker.metrics.refused == 1 and worker.metrics.done == 1)
        await until(lambda: tap.finals["same"] == 2)

    errors = sorted(str(each.error) for each in tap.responses if each.final)
    assert errors == ["None", "the id 'same' belongs to another request"]
    assert worker.metrics.failed == 0


@pytest.mark.parametrize("name", ["../outside", "/etc/outside"], ids=["above", "absolute"])
async def test_models_with_paths_in_them_are_refused(
    jobs_url: str, client: JobsClient, name: str
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "x")
    async with working(jobs_url):
        request = PredictModels("z", {"CLASS": ("P1-HM1",), "FC": ("1",)}, packed.getvalue())
        with pytest.raises(JobFailed, match="unsafe path"):
            await (await client.submit(request)).result()


async def test_a_cell_that_is_no_number_is_named(jobs_url: str, client: JobsClient) -> None:
    async with working(jobs_url):
        request = PredictModels("cell", {"CLASS": ("P1-HM1",), "FC": ("many",)}, b"")
        with pytest.raises(JobFailed, match="row 2, column FC: 'many' is not a number"):
            await (await client.submit(request, form=MessageFormat.XML)).result()


async def test_what_was_refused_leaves_the_worker_as_it_was(
    jobs_url: str, client: JobsClient
) -> None:
    async with working(jobs_url):
        await answer(jobs_url, "fake", BOMB, BasicProperties("text/xml"))

        assert (await (await client.submit(Fake("fine", 0.0))).result()).final
