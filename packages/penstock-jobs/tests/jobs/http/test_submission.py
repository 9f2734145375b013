"""What can be sent to `POST /jobs`, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_jobs import archive
from penstock_jobs.formats import MessageFormat, write_request
from penstock_jobs.formats.csv import write_csv
from penstock_jobs.http.app import create_app
from penstock_jobs.http.guard import ApiLimits
from penstock_jobs.model import BuildModels, Fake, JobOptions, PredictModels
from penstock_jobs.science import synthetic
from penstock_jobs.science.indicators import INDICATORS
from tests.jobs.http.conftest import URL
from tests.jobs.http.memory import MemoryJobs

REFERENCE = write_csv(synthetic.reference_columns(1)).encode()
SAMPLES = write_csv(synthetic.test_columns(1)).encode()


def trials() -> Iterable[tuple[str, tuple[str, bytes]]]:
    for name, agings in synthetic.agings(1).items():
        for aging, season in zip(agings, ("Winter", "Summer"), strict=True):
            file = f"env{name.replace('.', '')}-{season}.txt"
            yield "aging", (file, synthetic.trials_text(aging).encode())


async def test_json_is_accepted_and_says_where_the_job_is(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    answer = await api.post("/jobs", json={"type": "fake", "id": "a1", "duration": 3})
    assert answer.status_code == 202
    assert answer.headers["location"] == "/jobs/a1"
    assert answer.json()["state"] == "waiting"
    assert backend.requests["a1"] == Fake("a1", 3.0)
    assert backend.forms["a1"] is MessageFormat.JSON


async def test_a_request_without_an_id_is_given_one(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    answer = await api.post("/jobs", json={"type": "fake"})
    assert backend.requests[answer.json()["id"]].type == "fake"


async def test_priority_attempts_and_limits_go_with_it(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    wanted = {"priority": 7, "attempts": 2, "soft": 60, "hard": 90.5}
    await api.post("/jobs", params=wanted, json={"type": "fake", "id": "a1"})
    assert backend.options["a1"] == JobOptions(7, 2, 60.0, 90.5)


@pytest.mark.parametrize("form", [MessageFormat.XML, MessageFormat.MIME])
async def test_the_ichnaea_clients_messages_are_accepted(
    api: httpx.AsyncClient, backend: MemoryJobs, form: MessageFormat
) -> None:
    request = PredictModels("a1", {"CLASS": ("P1-HM01",), "FC": ("1",)}, b"PK")
    sent = Fake("a1") if form is MessageFormat.XML else request
    body = write_request(sent, form).body
    answer = await api.post("/jobs", content=body, headers={"content-type": form.value})
    assert answer.status_code == 202, answer.text
    assert (backend.requests["a1"], backend.forms["a1"]) == (sent, form)


async def test_a_form_with_files_is_a_request_to_build(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    files = [("dataset", ("reference.csv", REFERENCE)), *trials()]
    fields = {"type": "build_models", "id": "a1"}
    answer = await api.post("/jobs", data=fields, files=files)
    assert answer.status_code == 202, answer.text
    request = backend.requests["a1"]
    assert isinstance(request, BuildModels)
    assert len(request.dataset["CLASS"]) == 103
    assert len(request.agings["FC"]) == 2


async def test_a_form_whose_data_cannot_be_used_is_refused_by_row_and_column(
    api: httpx.AsyncClient, backend: MemoryJobs
) -> None:
    files = {"dataset": ("samples.csv", b"CLASS;FC;GA17\nP1-X1;1;2\nP1-X2;many;<x\n")}
    answer = await api.post("/jobs", data={"type": "predict_models"}, files=files)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:penstock:problem:data"
    assert answer.json()["problems"] == [
        {"row": 3, "column": "FC", "text": "'many' is not a number"},
        {"row": 3, "column": "GA17", "text": "'<x' is not a number"},
    ]
    assert not backend.requests


BOMB = b"""<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><request id="&b;" type="fake"/>"""


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"id": "a1", "type": "fake", "duration": -1}', "application/json", 400),
        (b'{"id": "a1", "type": "magic"}', "application/json", 400),
        (b'{"id": "a/../b", "type": "fake"}', "application/json", 422),
        (b'{"id": 7, "type": "fake"}', "application/json", 400),
        (BOMB, "text/xml", 400),
        (b"--x\r\ncontent-type: text/xml\r\n\r\n<request/>", "multipart/mixed", 400),
        (b"", "text/xml", 400),
        (b"hello", "text/plain", 415),
        (b"type=fake", "application/x-www-form-urlencoded", 415),
        (b"no boundary", "multipart/form-data", 400),
    ],
)
async def test_what_cannot_be_understood_is_refused_and_nothing_is_asked_for(
    api: httpx.AsyncClient, backend: MemoryJobs, body: bytes, content_type: str, status: int
) -> None:
    answer = await api.post("/jobs", content=body, headers={"content-type": content_type})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert not backend.requests


async def test_an_id_that_is_taken_is_a_conflict(api: httpx.AsyncClient) -> None:
    request = {"type": "fake", "id": "a1"}
    assert (await api.post("/jobs", json=request)).status_code == 202
    assert (await api.post("/jobs", json=request)).status_code == 409


async def test_commands_of_the_senders_choice_are_refused_unless_allowed(
    backend: MemoryJobs,
) -> None:
    request = {"type": "command", "id": "a1", "argv": ["rm", "-r", "/"]}
    for limits, status in ((ApiLimits(), 403), (ApiLimits(kinds=frozenset({"command"})), 202)):
        transport = httpx.ASGITransport(create_app(backend, limits))
        async with httpx.AsyncClient(transport=transport, base_url=URL) as api:
            assert (await api.post("/jobs", json=request)).status_code == status


async def endless() -> Any:
    yield b'--x\r\ncontent-disposition: form-data; name="dataset"; filename="a.csv"\r\n\r\n'
    for _ in range(1_000):
        yield b"x" * 1_024


@pytest.mark.parametrize("content_type", ["application/json", "multipart/form-data; boundary=x"])
async def test_a_body_over_the_limit_is_refused_even_when_its_length_is_not_told(
    backend: MemoryJobs, content_type: str
) -> None:
    transport = httpx.ASGITransport(create_app(backend, ApiLimits(body_bytes=10_000)))
    headers = {"content-type": content_type}
    async with httpx.AsyncClient(transport=transport, base_url=URL) as api:
        told = await api.post("/jobs", content=b"x" * 10_001, headers=headers)
        untold = await api.post("/jobs", content=endless(), headers=headers)
    assert (told.status_code, untold.status_code) == (413, 413)


async def test_a_data_set_can_be_checked_without_asking_for_anything(
    api: httpx.AsyncClient,
) -> None:
    good = await api.post("/datasets/check?purpose=build_models", content=REFERENCE)
    assert good.json() | {"indicators": []} == {
        "usable": True,
        "samples": 103,
        "humans": 54,
        "animals": 49,
        "indicators": [],
        "problems": [],
    }
    wrong = await api.post("/datasets/check", content=b"CLASS,FC\nP1-HM01,3\n")
    assert wrong.json()["problems"] == [
        {"row": 1, "column": "CLASS,FC", "text": "only one column: cells must be separated by ';'"}
    ]
    few = await api.post("/datasets/check?purpose=build_models", content=SAMPLES)
    assert "at least 10 of each origin" in json.dumps(few.json()["problems"])


def bomb(**tables: Any) -> bytes:
    """A model that is whole but for its table: a few bytes that stand for very many."""
    table = io.BytesIO()
    pq.write_table(pa.table(tables), table)
    files = {"manifest.json": b'{"schema": 1, "seed": 1}', "coefficients.json": b"{}"}
    return archive.pack({**files, "signatures.json": b"[]", "matrix.parquet": table.getvalue()})


async def test_models_that_are_a_bomb_are_refused(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.array([0] * 1_000_000)
    zeros, words = pa.array([0.0]).take(rows), pa.array(["summer"]).take(rows)
    data = bomb(CLASS=words, season=words, **dict.fromkeys(INDICATORS, zeros))
    assert len(data) < 10_000

    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(pq.ParquetFile, "read", read)
    files = {"dataset": SAMPLES, "models": data}
    answer = await api.post("/jobs", data={"type": "predict_models"}, files=files)
    assert answer.status_code == 400
    assert "1,000,000 rows; at most 100,000" in answer.json()["detail"]


async def test_models_of_values_without_end_are_refused(api: httpx.AsyncClient) -> None:
    lists = b"[" + b"[]," * 2_000_000 + b"[]]"
    data = archive.pack({"manifest.json": lists})
    assert len(data) < 10_000
    files = {"dataset": SAMPLES, "models": data}
    answer = await api.post("/jobs", data={"type": "predict_models"}, files=files)
    assert answer.status_code == 400
    assert "more than 500,000 values" in answer.json()["detail"]


async def test_trials_are_bounded_in_all_zips_together(api: httpx.AsyncClient) -> None:
    content = b"# nothing but a comment\n" * 50_000
    files = [("dataset", ("reference.csv", REFERENCE))]
    for number in range(10):
        zipped = archive.pack({f"{number}/envFC-Summer.txt": content})
        files.append(("aging", (f"{number}.zip", zipped)))
    answer = await api.post("/jobs", data={"type": "build_models"}, files=files)
    assert answer.status_code == 400
    assert "at most" in answer.json()["detail"]


async def test_json_of_too_many_values_is_refused(api: httpx.AsyncClient) -> None:
    body = b'{"type": "build_models", "dataset": {"a": [' + b'"",' * 1_000_001 + b'""]}}'
    answer = await api.post("/jobs", content=body)
    assert answer.status_code == 400
    assert "more than 1,000,000 values" in answer.json()["detail"]


@pytest.mark.parametrize("body", [b"{}", b" { } ", b'{"id": "a1"}', b'{,"type": "fake"}', b'{"'])
async def test_what_is_no_request_is_refused_and_told(api: httpx.AsyncClient, body: bytes) -> None:
    answer = await api.post("/jobs", content=body)
    assert answer.status_code == 400
