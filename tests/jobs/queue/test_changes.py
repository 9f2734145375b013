"""The history is the same whatever order it is told in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations

import pytest

from penstock.jobs.forms import Written, write_request, write_response
from penstock.jobs.history.changes import (
    Change,
    Kept,
    folded,
    from_request,
    from_response,
    summary,
)
from penstock.jobs.history.records import JobState
from penstock.jobs.history.shelf import Shelf
from penstock.jobs.model import Fake, Response, Result
from penstock.jobs.queue.envelope import (
    Envelope,
    Telling,
    request_properties,
    response_properties,
)
from penstock.store import Database
from tests.databases import copy_of

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def asked(run: int = 1) -> Change:
    written = write_request(Fake("1"))
    change = from_request(
        written.body, request_properties(written, "1", Envelope(run=run, submitted=5)), NOW
    )
    assert change is not None
    return change


def told(state: JobState, progress: float, run: int = 1, attempt: int = 1) -> Change:
    written: Written = write_response(Response("1", "fake", progress, NOW))
    said = response_properties(written, Envelope(), Telling(state, run, attempt, "w"))
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
        [last] = folded(order)
        assert (last.state, last.progress, last.attempts) == (JobState.RUNNING, 0.1, 2)
        assert last.submitted == datetime.fromtimestamp(5, UTC)
        assert last.request is not None


def test_another_run_begins_again() -> None:
    [last] = folded([*LIFE, asked(2)])

    assert (last.state, last.run, last.progress) == (JobState.WAITING, 2, 0.0)


def test_a_refusal_does_not_touch_the_job_whose_id_it_has() -> None:
    [last] = folded([asked(), told(JobState.REFUSED, 1.0)])

    assert last.state is JobState.WAITING


def test_a_summary_has_the_figures_of_a_result() -> None:
    built = Response("1", "build_models", models=b"zip", value={"signatures": 750, "text": "x"})
    assert summary(built) == {"signatures": 750, "models_bytes": 3}
    predicted = Response("1", "predict_models", results=(Result("E", 15, 14, 0.1),))
    assert summary(predicted) == {"samples": 15, "predicted": 14, "error": 0.1}


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_the_tables_say_the_same(embedded_template: str, backwards: bool, at_once: bool) -> None:
    life = LIFE[::-1] if backwards else LIFE
    with copy_of(embedded_template) as url, Database(url) as database:
        shelf = Shelf(database)
        for batch in [life] if at_once else [[each] for each in life]:
            shelf.add(batch)
        shelf.add(life)  # told twice

        record = shelf.get("1")
        states = [event.state for event in shelf.events("1")]

    assert (record.state, record.progress, record.attempts) == (JobState.DONE, 1.0, 2)
    assert states == ["waiting", "running", "retrying", "running", "done"]


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_of_two_final_responses_to_one_run_the_first_is_kept(
    embedded_template: str, at_once: bool
) -> None:
    first = told(JobState.DONE, 1.0)
    second = replace(first, response=Kept("text/xml", b"second"))
    next_run = replace(first, run=2, response=Kept("text/xml", b"next run"))
    with copy_of(embedded_template) as url, Database(url) as database:
        shelf = Shelf(database)
        shelf.add([asked()])
        for batch in [[first, second]] if at_once else [[first], [second]]:
            shelf.add(batch)
        assert shelf.content("1", "response") == first.response
        revision = shelf.last_revision()
        shelf.add([second])
        assert shelf.last_revision() == revision  # nobody is told of it

        shelf.add([asked(2), next_run])
        assert shelf.content("1", "response") == next_run.response


def test_what_is_old_is_removed_with_all_that_belongs_to_it(embedded_template: str) -> None:
    with copy_of(embedded_template) as url, Database(url) as database:
        shelf = Shelf(database)
        shelf.add(LIFE)
        assert shelf.sweep() == 0
        database.execute("UPDATE job SET expires_at = now() - interval '1 second'")

        assert shelf.sweep() == 1
        left = database.rows(
            "SELECT FROM job_event UNION ALL SELECT FROM job_content UNION ALL SELECT FROM job"
        )
    assert left == []
