"""Jobs that are there: looked at, ended, tried again; and what came of them."""

from __future__ import annotations

import httpx
import pytest

from penstock_jobs.formats import read_response
from penstock_jobs.http.app import create_app
from penstock_jobs.http.guard import ApiLimits
from penstock_jobs.model import Fake, JobResponse, JobState, VoteResult
from tests.jobs.http.conftest import URL
from tests.jobs.http.memory import MemoryJobs

TABLE = {"CLASS": ("P6-HM01", "P6-X02"), "PRED": ("1", "-1"), "origin": ("human", "animal; pig")}
PREDICTED = JobResponse(
    "a1",
    "predict_models",
    results=(VoteResult("ERROR2", 2, 2, 0.0, TABLE, {"-1": (1, 0), "1": (0, 1)}),),
)
BUILT = JobResponse("a1", "build_models", models=b"PK\x05\x06" + bytes(18))


async def test_jobs_are_listed_the_newest_first_a_page_at_a_time(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    for number in range(5):
        await backend.submit(Fake(f"a{number}"))
    found = (await api.get("/jobs", params={"size": 2, "page": 2})).json()
    assert [job["id"] for job in found["jobs"]] == ["a2", "a1"]
    assert (found["total"], found["page"], found["size"]) == (5, 2, 2)


async def test_jobs_are_found_by_state_kind_and_a_part_of_the_id(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    await backend.submit(Fake("river-1"))
    await backend.submit(Fake("lake-1"))
    await backend.change("lake-1", state=JobState.RUNNING)
    wanted = {"state": "running", "kind": "fake", "text": "lake"}
    found = (await api.get("/jobs", params=wanted)).json()
    assert [job["id"] for job in found["jobs"]] == ["lake-1"]
    assert (await api.get("/counts")).json()["counts"]["running"] == 1
    assert (await api.get("/jobs?state=sleeping")).status_code == 422


async def test_what_happened_to_a_job_is_told(api: httpx.AsyncClient, backend: MemoryJobs) -> None:
    await backend.submit(Fake("a1"))
    await backend.change("a1", state=JobState.FAILED, error="no such script")
    assert (await api.get("/jobs/a1")).json()["error"] == "no such script"
    events = (await api.get("/jobs/a1/events")).json()
    assert [(each["state"], each["text"]) for each in events] == [
        ("waiting", ""),
        ("failed", "no such script"),
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/none"),
        ("GET", "/jobs/none/progress"),
        ("GET", "/jobs/none/events"),
        ("GET", "/jobs/none/result"),
        ("POST", "/jobs/none/cancel"),
        ("POST", "/jobs/none/retry"),
        ("GET", "/schemas/none"),
        ("GET", "/nowhere"),
    ],
)
async def test_what_is_not_there_is_a_problem_with_its_place(
    api: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await api.request(method, path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["instance"] == path


async def test_a_job_is_cancelled_once_and_may_then_be_tried_again(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    await backend.submit(Fake("a1"))
    assert (await api.post("/jobs/a1/retry")).status_code == 409
    assert (await api.post("/jobs/a1/cancel")).json()["state"] == "cancelled"
    assert (await api.post("/jobs/a1/cancel")).status_code == 409
    assert (await api.post("/jobs/a1/retry")).json()["state"] == "waiting"


async def test_dead_letters_are_listed_and_sent_again(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    for name in ("a1", "a2", "a3"):
        await backend.submit(Fake(name))
        await backend.change(name, state=JobState.FAILED, error="no")
    assert (await api.get("/dead-letters")).json()["total"] == 3
    chosen = await api.post("/dead-letters/replay", json={"ids": ["a2"]})
    assert chosen.json() == {"replayed": 1}
    assert backend.records["a2"].state is JobState.WAITING
    assert (await api.post("/dead-letters/replay", json={})).json() == {"replayed": 2}
    assert (await api.post("/dead-letters/replay", json={"id": "a1"})).status_code == 422


async def test_a_result_before_the_end_is_a_conflict(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    await backend.submit(Fake("a1"))
    answer = await api.get("/jobs/a1/result")
    assert answer.status_code == 409
    assert "waiting" in answer.json()["detail"]


async def test_a_result_comes_in_the_form_that_is_asked_for(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    await backend.submit(Fake("a1"))
    await backend.finish("a1", PREDICTED)
    as_json = await api.get("/jobs/a1/result")
    assert read_response(as_json.content)[0] == PREDICTED
    as_xml = await api.get("/jobs/a1/result", headers={"accept": "text/html, text/xml;q=0.9"})
    assert as_xml.headers["content-type"].startswith("text/xml")
    assert read_response(as_xml.content)[0] == PREDICTED
    as_csv = await api.get("/jobs/a1/result?as=csv")
    assert as_csv.text == 'CLASS;PRED;origin\nP6-HM01;1;human\nP6-X02;-1;"animal; pig"\n'
    assert 'filename="a1-ERROR2.csv"' in as_csv.headers["content-disposition"]
    assert (await api.get("/jobs/a1/result?as=zip")).status_code == 409
    assert (await api.get("/jobs/a1/result?as=csv&scheme=NONE")).status_code == 409


async def test_built_models_come_as_the_zip_they_are(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    await backend.submit(Fake("a1"))
    await backend.finish("a1", BUILT)
    as_zip = await api.get("/jobs/a1/result", headers={"accept": "application/zip"})
    assert as_zip.content == BUILT.models
    assert read_response((await api.get("/jobs/a1/result?as=mime")).content)[0] == BUILT
    as_xml = await api.get("/jobs/a1/result?as=xml")
    assert as_xml.content.lstrip().startswith(b"<")


async def test_pages_of_other_sites_may_not_change_anything(backend: MemoryJobs) -> None:
    await backend.submit(Fake("a1"))
    limits = ApiLimits(origins=frozenset({"https://lab.test"}))
    transport = httpx.ASGITransport(create_app(backend, limits))
    async with httpx.AsyncClient(transport=transport, base_url=URL) as api:
        for origin, status in (
            ("https://evil.test", 403),
            ("null", 403),
            ("https://lab.test", 200),
        ):
            await backend.change("a1", state=JobState.RUNNING)
            answer = await api.post("/jobs/a1/cancel", headers={"origin": origin})
            assert answer.status_code == status
        seen = await api.get("/jobs/a1", headers={"origin": "https://lab.test"})
        assert seen.headers["access-control-allow-origin"] == "https://lab.test"


async def test_with_a_token_only_who_has_it_is_answered(backend: MemoryJobs) -> None:
    transport = httpx.ASGITransport(create_app(backend, ApiLimits(token="sesame")))
    async with httpx.AsyncClient(transport=transport, base_url=URL) as api:
        assert (await api.get("/health")).status_code == 200
        refused = await api.get("/jobs")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        wrong = await api.get("/jobs", headers={"authorization": "Bearer open"})
        assert wrong.status_code == 401
        right = await api.get("/jobs", headers={"authorization": "Bearer sesame"})
        assert right.status_code == 200


async def test_schemas_are_published(api: httpx.AsyncClient) -> None:
    assert "$defs" in (await api.get("/schemas/jobs.json")).json()
    assert b"schema" in (await api.get("/schemas/ichnaea.xsd")).content


async def test_a_request_to_a_name_that_is_not_the_apis_is_refused(backend: MemoryJobs) -> None:
    rebound = {"host": "rebound.example"}
    form = {"type": (None, "fake"), "id": (None, "a1")}

    async def ask(limits: ApiLimits) -> tuple[int, int]:
        transport = httpx.ASGITransport(create_app(backend, limits))
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            listed = await client.get("/jobs", headers=rebound)
            asked = await client.post("/jobs", files=form, headers=rebound)
        return listed.status_code, asked.status_code

    assert await ask(ApiLimits()) == (403, 403)
    assert await backend.counts() == dict.fromkeys(JobState, 0)
    assert await ask(ApiLimits(hosts=frozenset({"rebound.example"}))) == (200, 202)


async def test_every_operation_needs_the_token(backend: MemoryJobs) -> None:
    """From the description, so that a new operation is covered."""
    app = create_app(backend, ApiLimits(token="secret"))
    operations = [
        (method, path.format(id="1", name="job", version="1"))
        for path, item in app.openapi()["paths"].items()
        for method in item
    ]
    assert len(operations) > 10
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://jobs.localhost"
    ) as client:
        answered = [
            (method, path)
            for method, path in operations
            if (await client.request(method, path)).status_code != 401
        ]
    assert answered == [("get", "/health")]
