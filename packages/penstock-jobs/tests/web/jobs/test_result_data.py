"""What pages make of jobs, before anything is drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from penstock_jobs.errors import DatasetProblem
from penstock_jobs.model import Fake, JobRecord, JobState, VoteResult
from penstock_jobs.web import job_row, result_data, result_view, upload
from tests.jobs.http.memory import MemoryJobs

NOW = datetime(2026, 5, 5, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (3.21, "3.2 s"),
        (59.6, "1 min"),
        (250, "4 min 10 s"),
        (3600, "1 h"),
        (7_500, "2 h 5 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_a_span_of_time_has_two_units_at_most(seconds: float, text: str) -> None:
    assert job_row.span(seconds) == text


@pytest.mark.parametrize(
    ("state", "fields", "text"),
    [
        (JobState.RUNNING, {"progress": 0.425, "end": 130}, "42% · about 2 min left"),
        (JobState.RUNNING, {"progress": 0.425, "end": -3}, "42%"),
        (JobState.DONE, {"start": -70, "end": -10}, "took 1 min"),
        (JobState.FAILED, {"error": "no script\nTraceback …"}, "no script"),
        (JobState.WAITING, {}, "waiting for 2 min"),
    ],
)
def test_how_a_job_stands_is_said_in_a_line(
    state: JobState, fields: dict[str, float | str], text: str
) -> None:
    times = {
        name: NOW + timedelta(seconds=float(fields.pop(name)))
        for name in ("start", "end")
        if name in fields
    }
    submitted = NOW - timedelta(minutes=2)
    record = JobRecord("a", "fake", state, submitted, NOW, **fields, **times)  # type: ignore[arg-type]
    assert job_row.progress_text(record, NOW) == text


def test_a_prediction_is_read_from_its_table() -> None:
    table = {
        "CLASS": ("P6-HM01", "P6-X02", "P6-X03"),
        "PRED": ("1", "-1", "0"),
        "tHM": ("12", "1", "0"),
        "tAN": ("1", "40", "0"),
        "origin": ("human", "animal", ""),
        "confidence": ("0.9", "0.7", "0"),
        "decided by": ("FC_GA17, FC", "FC", ""),
    }
    result = VoteResult("ERROR2", 3, 2, 0.0, table, {"-1": (1, 0), "1": (0, 1)})
    found = result_data.read_prediction(result)
    assert [sample.origin for sample in found.samples] == ["human", "animal", ""]
    assert [sample.hours for sample in found.samples] == [12, 40, 0]
    assert found.deciding == [("FC", 2), ("FC_GA17", 1)]
    assert found.confusion == ((1, 0), (0, 1))


def test_a_table_of_the_originals_columns_is_enough() -> None:
    table = {"CLASS": ("P6-X02",), "PRED": ("-1",), "tAN": ("40",), "dAN": ("3.5",)}
    (sample,) = result_data.read_prediction(VoteResult("ERROR2", 1, 1, None, table)).samples
    assert (sample.origin, sample.hours, sample.dilution) == ("animal", 40.0, 3.5)


def test_what_people_write_in_cells_and_ids_stays_text() -> None:
    rows = (("CLASS", "<b>"), ("P1", "<script>"))
    assert "<script>" not in upload.preview(rows, [DatasetProblem(2, "<b>", "'<script>' & no")])
    table = {"CLASS": ("<script>",), "origin": ("<i>",), "decided by": ("<u>",)}
    html = result_view.sample_table(
        result_data.read_prediction(VoteResult("ERROR2", 1, 1, None, table))
    )
    assert not [tag for tag in ("<script>", "<i>", "<u>") if tag in html]


def test_rows_with_problems_are_shown_however_far_down_they_are() -> None:
    rows = (("CLASS", "FC"), *(("P1", str(number)) for number in range(100)))
    html = upload.preview(rows, [DatasetProblem(90, "FC", "wrong")])
    assert "<th>90</th>" in html
    assert "<th>50</th>" not in html


async def test_many_changes_of_a_job_are_few_updates_and_an_error_does_not_end_them() -> None:
    jobs = MemoryJobs()
    updates: list[Sequence[JobRecord]] = []
    ended = asyncio.Event()

    def show(records: Sequence[JobRecord]) -> None:
        updates.append(records)
        if any(record.state.final for record in records):
            ended.set()
        raise ValueError("a page that is gone")

    with jobs.watcher() as watcher:
        task = asyncio.create_task(job_row.show_changes(watcher, show))
        await jobs.submit(Fake("a1"))
        for step in range(200):
            await jobs.change("a1", state=JobState.RUNNING, progress=step / 200)
        await jobs.change("a1", state=JobState.DONE, progress=1.0)
        await asyncio.wait_for(ended.wait(), 60)
        task.cancel()
    assert updates[-1][-1].state is JobState.DONE
    assert len(updates) < 50
