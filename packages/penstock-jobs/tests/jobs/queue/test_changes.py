"""The history is the same whatever order it is told in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations

import pytest

from penstock_jobs.formats import EncodedMessage, write_request, write_response
from penstock_jobs.history.changes import (
    JobChange,
    StoredMessage,
    from_request,
    from_response,
    merge_changes,
    summary,
)
from penstock_jobs.history.recorder import JobRecorder
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import Fake, JobResponse, JobState, VoteResult
from penstock_jobs.queue.properties import (
    RequestProperties,
    ResponseProperties,
    write_request_properties,
    write_response_properties,
)
from penstock_store import Database
from tests.databases import copy_of

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def asked(run: int = 1) -> JobChange:
    written = write_request(Fake("1"))
    change = from_request(
        written.body,
        write_request_properties(written, "1", RequestProperties(run=run, submitted=5)),
        NOW,
    )
    assert change is not None
    return change


def told(state: JobState, progress: float, run: int = 1, attempt: int = 1) -> JobChange:
    written: EncodedMessage = write_response(JobResponse("1", "fake", progress, NOW))
    said = write_response_properties(
        written, RequestProperties(), ResponseProperties(state, run, attempt, "w")
    )
    change = from_response(written.body, said, NOW)
    assert change is not None
    return change


LIFE = [
    asked(),
    told(JobState.RUNNING, 0.2),
    told(JobState.RUNNING, 0.6),
    told(JobState.RETRYING, 0.0),
    told(JobState.RUNNING, 0.1, attempt=2),
    told(JobState.DONE, 1.0, attempt=2),
]


def test_the_latest_holds_whichever_was_told_first() -> None:
    for order in permutations(LIFE[:5]):
        [last] = merge_changes(order)
        assert (last.state, last.progress, last.attempts) == (JobState.RUNNING, 0.1, 2)
        assert last.submitted == datetime.fromtimestamp(5, UTC)
        assert last.request is not None


def test_another_run_begins_again() -> None:
    [last] = merge_changes([*LIFE, asked(2)])

    assert (last.state, last.run, last.progress) == (JobState.WAITING, 2, 0.0)


def test_a_refusal_does_not_touch_the_job_whose_id_it_has() -> None:
    [last] = merge_changes([asked(), told(JobState.REFUSED, 1.0)])

    assert last.state is JobState.WAITING


def test_a_summary_has_the_figures_of_a_result() -> None:
    built = JobResponse("1", "build_models", models=b"zip", value={"signatures": 750, "text": "x"})
    assert summary(built) == {"signatures": 750, "models_bytes": 3}
    predicted = JobResponse("1", "predict_models", results=(VoteResult("E", 15, 14, 0.1),))
    assert summary(predicted) == {"samples": 15, "predicted": 14, "error": 0.1}


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_the_tables_say_the_same(embedded_template: str, backwards: bool, at_once: bool) -> None:
    life = LIFE[::-1] if backwards else LIFE
    with copy_of(embedded_template) as url, Database(url) as database:
        repository = JobRepository(database)
        for batch in [life] if at_once else [[each] for each in life]:
            repository.add(batch)
        repository.add(life)  # told twice

        record = repository.get("1")
        states = [event.state for event in repository.events("1")]

    assert (record.state, record.progress, record.attempts) == (JobState.DONE, 1.0, 2)
    assert states == ["waiting", "running", "retrying", "running", "done"]


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_of_two_final_responses_to_one_run_the_first_is_kept(
    embedded_template: str, at_once: bool
) -> None:
    first = told(JobState.DONE, 1.0)
    second = replace(first, response=StoredMessage("text/xml", b"second"))
    next_run = replace(first, run=2, response=StoredMessage("text/xml", b"next run"))
    with copy_of(embedded_template) as url, Database(url) as database:
        repository = JobRepository(database)
        repository.add([asked()])
        for batch in [[first, second]] if at_once else [[first], [second]]:
            repository.add(batch)
        assert repository.content("1", "response") == first.response
        revision = repository.last_revision()
        repository.add([second])
        assert repository.last_revision() == revision  # nobody is told of it

        repository.add([asked(2), next_run])
        assert repository.content("1", "response") == next_run.response


def test_what_is_old_is_removed_with_all_that_belongs_to_it(embedded_template: str) -> None:
    with copy_of(embedded_template) as url, Database(url) as database:
        repository = JobRepository(database)
        repository.add(LIFE)
        assert repository.clean_up() == 0
        database.execute("UPDATE job SET expires_at = now() - interval '1 second'")

        assert repository.clean_up() == 1
        left = database.rows(
            "SELECT FROM job_event UNION ALL SELECT FROM job_content UNION ALL SELECT FROM job"
        )
    assert left == []


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), 10**5000], ids=["inf", "nan", "long"]
)
def test_figures_that_no_database_stores_are_no_summary(value: float) -> None:
    response = JobResponse("1", "call", 1.0, NOW, value={"a\0": 1, "big": value, "b": 2})
    assert summary(response) == {"b": 2}


async def test_a_message_that_cannot_be_stored_holds_up_no_other(embedded_template: str) -> None:
    with copy_of(embedded_template) as url, Database(url) as database:
        repository = JobRepository(database)
        recorder = JobRecorder("amqp://localhost", repository)
        await recorder._store([replace(asked(), id="a\0"), asked(), replace(asked(), id="2")])
        assert set(repository.known(["1", "2"])) == {"1", "2"}
