"""The parts of a worker that decide: what it remembers, how fast it goes, when it tries again."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.basic_properties import BasicProperties
from penstock.core.errors import PreconditionFailed
from penstock_jobs.executors.executor import AttemptListener
from penstock_jobs.executors.functions import is_permitted
from penstock_jobs.formats import EncodedMessage, MessageFormat
from penstock_jobs.model import (
    Fake,
    FunctionCall,
    JobOptions,
    JobState,
    read_options,
    write_options,
)
from penstock_jobs.queue.properties import (
    RequestProperties,
    ResponseProperties,
    dead_letter_properties,
    read_request_properties,
    read_response_properties,
    replay_properties,
    retry_properties,
    write_request_properties,
    write_response_properties,
)
from penstock_jobs.queue.topology import request_name, response_name
from penstock_jobs.queue.worker_connection import (
    CancelRequest,
    JobDelivery,
    read_cancel_request,
    write_cancel_request,
)
from penstock_jobs.shells.shell import GRACE_SECONDS
from penstock_jobs.worker.job import TRANSITIONS, JobRegistry, JobStage, RequestMatch, WorkerJob
from penstock_jobs.worker.middleware import TimeLimitMiddleware
from penstock_jobs.worker.slots import PrefetchController, RateLimit, first_prefetch
from tests.jobs.queue.line import Bench


def job(identity: str = "1", asked: bytes = b"a", run: int = 1, epoch: int = 1) -> WorkerJob:
    delivery = JobDelivery("fake", 1, epoch, asked, BasicProperties(), False)
    return WorkerJob(Fake(identity), MessageFormat.JSON, RequestProperties(run=run), delivery)


# The registry.


@pytest.mark.parametrize("target", JobStage)
@pytest.mark.parametrize("source", JobStage)
def test_a_job_changes_its_stage_by_the_table_only(source: JobStage, target: JobStage) -> None:
    moved = job()
    moved.stage = source
    if target in TRANSITIONS[source]:
        moved.move(target)
        assert moved.stage is target
    else:
        with pytest.raises(RuntimeError, match=f"{source.name} → {target.name}"):
            moved.move(target)


def test_a_request_is_met_by_what_is_known_of_its_id() -> None:
    registry = JobRegistry()
    first = job()
    assert registry.match(first, 1) is RequestMatch.NEW
    registry.add(first)

    assert registry.match(job(), 1) is RequestMatch.COPY
    assert registry.match(job(asked=b"b"), 1) is RequestMatch.CONFLICT
    assert (
        registry.match(job(epoch=2), 2) is RequestMatch.REDELIVERED
    )  # its delivery is of a lost connection
    assert registry.match(job("2"), 1) is RequestMatch.NEW


def test_what_was_answered_is_remembered_and_a_new_run_is_new() -> None:
    registry = JobRegistry()
    first = job()
    registry.add(first)
    first.stage, first.final = JobStage.SETTLING, True
    registry.mark_settled(first)

    assert registry.match(job(), 1) is RequestMatch.COPY
    assert registry.match(job(asked=b"b"), 1) is RequestMatch.CONFLICT
    assert registry.match(job(run=2), 1) is RequestMatch.NEW


def test_an_answer_that_may_not_have_arrived_is_kept_for_its_request() -> None:
    registry = JobRegistry()
    first = job()
    registry.add(first)
    first.stage, first.final = JobStage.SETTLING, True
    registry.mark_unconfirmed(first)

    assert registry.match(job(), 1) is RequestMatch.REDELIVERED


def test_of_too_many_such_answers_the_oldest_are_forgotten_and_their_requests_done_again() -> None:
    registry = JobRegistry()
    for number in range(10_001):
        each = job(str(number))
        registry.add(each)
        each.stage, each.final = JobStage.SETTLING, True
        registry.mark_unconfirmed(each)

    assert registry.match(job("0"), 1) is RequestMatch.NEW
    assert registry.match(job("1"), 1) is RequestMatch.REDELIVERED


def test_a_wish_holds_for_what_was_asked_before_it() -> None:
    assert CancelRequest("x", 100.5).applies_to(1, None)
    assert CancelRequest("x", 100.5).applies_to(2, 99)
    assert not CancelRequest("x", 100.5).applies_to(2, 100)
    assert not CancelRequest("x", 100.5, run=1).applies_to(2, 1)


@given(st.text(), st.floats(0, 1e10), st.none() | st.integers(1, 1000))
def test_wishes_are_read_as_they_were_written(cancel: str, at: float, run: int | None) -> None:
    cancel_request = CancelRequest(cancel, at, run)
    assert read_cancel_request(write_cancel_request(cancel_request)) == cancel_request


@given(st.binary())
def test_what_is_no_wish_is_none(body: bytes) -> None:
    assert read_cancel_request(body) is None or b"cancel" in body


# The prefetch.


def test_many_are_taken_once_jobs_are_seen_to_be_short() -> None:
    prefetch_controller = PrefetchController(2)
    assert prefetch_controller.capacity(True) == 2
    changes = []
    for _ in range(40):
        prefetch_controller.record(0.00001)
        changes.append(prefetch_controller.update(1))

    assert [each for each in changes if each is not None] == [128]
    assert (prefetch_controller.capacity(True), prefetch_controller.capacity(False)) == (128, 2)


@pytest.mark.parametrize(("seconds", "most"), [(0.00001, 2048), (0.0005, 400), (0.0019, 128)])
def test_twice_as_many_as_long_as_they_stay_short(seconds: float, most: int) -> None:
    prefetch_controller = PrefetchController(2)
    paces = []
    for _ in range(20_000):
        prefetch_controller.record(seconds)
        paces.append(prefetch_controller.update(1))

    found = [each for each in paces if each is not None]
    assert found[0] == 128
    assert abs(found[-1] - most) <= 2
    assert all(later <= 2 * sooner for sooner, later in pairwise(found))


def test_one_in_a_hundred_that_is_held_up_does_not_end_that() -> None:
    prefetch_controller = PrefetchController(2)
    paces = []
    for number in range(20_000):
        prefetch_controller.record(0.005 if number % 100 == 99 else 0.00001)
        paces.append(prefetch_controller.update(1))

    assert max(each for each in paces if each is not None) > 1024


def test_one_that_takes_long_ends_that() -> None:
    prefetch_controller = PrefetchController(2)
    for _ in range(40):
        prefetch_controller.record(0.001)
        prefetch_controller.update(1)
    assert prefetch_controller.is_prefetching

    assert prefetch_controller.reset() == 2
    assert prefetch_controller.reset() is None
    assert prefetch_controller.capacity(True) == 2


def test_a_pause_ends_when_there_is_room() -> None:
    prefetch_controller = PrefetchController(2)
    assert prefetch_controller.pause() == 0
    assert prefetch_controller.update(2) is None
    assert prefetch_controller.update(1) == 2


# Properties.


def test_with_many_slots_the_next_jobs_are_fetched_while_jobs_are_not_long() -> None:
    prefetch_controller = PrefetchController(100)
    assert (first_prefetch(100), prefetch_controller.is_doubled) == (200, True)
    assert prefetch_controller.capacity(False) == 100

    def run(jobs: int, seconds: float) -> set[int | None]:
        changes = set()
        for _ in range(jobs):
            prefetch_controller.record(seconds)
            changes.add(prefetch_controller.update(99))
        return changes

    assert run(200, 1.0) == {None}
    assert run(200, 10.0) == {None, 100}
    assert run(200, 1.0) == {None, 200}


# Time limits.


def limited(options: JobOptions) -> tuple[WorkerJob, Bench]:
    bench = Bench()
    properties = RequestProperties(options=options)
    delivery = JobDelivery("call", 1, 1, b"", BasicProperties(), False)
    job = WorkerJob(FunctionCall("1", "m:f"), MessageFormat.JSON, properties, delivery)
    job.attempt = bench.start(job.request, cast(AttemptListener, Mock()))
    return job, bench


def test_an_attempt_is_asked_to_end_once_and_then_ended() -> None:
    job, bench = limited(JobOptions(soft=1.0, hard=3.0))
    limits = TimeLimitMiddleware(None, None)
    limits.on_long_attempt(job, 0.9)
    assert not bench.lying["1"].interrupted
    limits.on_long_attempt(job, 1.1)
    assert (bench.lying["1"].interrupted, job.exceeded) == (True, 1.0)
    bench.lying["1"].interrupted = False
    limits.on_long_attempt(job, 2.9)
    assert not bench.lying["1"].interrupted
    limits.on_long_attempt(job, 3.0)
    assert (dict(bench.lying), job.exceeded) == ({}, 1.0)


@pytest.mark.parametrize(
    ("worker", "options", "end"),
    [
        ((None, 5.0), JobOptions(), 5.0),
        ((None, 5.0), JobOptions(hard=9.0), 9.0),
        ((2.0, None), JobOptions(), 2.0 + GRACE_SECONDS),
        ((None, None), JobOptions(), math.inf),
    ],
)
def test_the_limit_of_a_request_counts_before_that_of_the_worker(
    worker: tuple[float | None, float | None], options: JobOptions, end: float
) -> None:
    job, bench = limited(options)
    limits = TimeLimitMiddleware(*worker)
    limits.on_long_attempt(job, min(end - 0.1, 1e9))
    assert bench.lying
    limits.on_long_attempt(job, end)
    assert bool(bench.lying) == (end == math.inf)


def test_an_envelope_survives_the_retries_of_its_request() -> None:
    options = JobOptions(5, 7, 1.5, 60.0)
    request_properties = RequestProperties("me", "c", options=options)
    said = write_request_properties(EncodedMessage(b"", "text/xml"), "1", request_properties)

    for attempt in (2, 3):
        said = retry_properties(said, attempt, 500)
        assert said.expiration == "500"
        found = read_request_properties(said)
        assert (found.attempt, found.options, found.reply_to) == (attempt, options, "me")

    dead = dead_letter_properties(said, "no luck")
    assert (dead.expiration, dead.headers and dead.headers["job-error"]) == (None, "no luck")
    risen = read_request_properties(replay_properties(dead, 2))
    assert (risen.run, risen.attempt, risen.options) == (2, 1, options)


def test_headers_of_strangers_do_not_travel_on() -> None:
    said = BasicProperties(headers={"x-death": [1], "job-list": [1], "job-attempts": 3})

    assert retry_properties(said, 2, 1).headers == {"job-attempts": 3, "job-attempt": 2}


def test_a_response_by_another_worker_tells_what_it_can() -> None:
    assert (
        read_response_properties(BasicProperties(), final=False, error=None).state
        is JobState.RUNNING
    )
    assert (
        read_response_properties(BasicProperties(), final=True, error=None).state is JobState.DONE
    )
    assert (
        read_response_properties(BasicProperties(), final=True, error="x").state is JobState.FAILED
    )


def test_what_goes_with_a_response_is_read_as_it_was_written() -> None:
    told = ResponseProperties(JobState.RETRYING, 2, 3, "worker", "why")
    said = write_response_properties(EncodedMessage(b"", "t"), RequestProperties(), told)

    assert read_response_properties(said, final=False, error=None) == told
    assert not said.persistent


@pytest.mark.parametrize("priority", [-1, 10])
def test_priorities_are_nought_to_nine(priority: int) -> None:
    with pytest.raises(PreconditionFailed):
        JobOptions(priority)


@given(
    st.builds(
        JobOptions,
        st.integers(0, 9),
        st.none() | st.integers(1, 100),
        st.none() | st.floats(0.1, 1e6),
        st.none() | st.floats(0.1, 1e6),
    )
)
def test_options_are_read_as_they_were_written(options: JobOptions) -> None:
    assert read_options(write_options(options), options.priority) == options


def test_names_are_those_of_the_ichnaea_clients() -> None:
    assert request_name("build_models") == "ichnaea.build-models.request"
    assert response_name("fake") == "ichnaea.fake.response"


@pytest.mark.parametrize(
    ("function", "may"),
    [("a.b:c", True), ("a.b.d:c", True), ("a.bc:c", False), ("x:y", True), ("x:z", False)],
)
def test_modules_are_allowed_with_all_below_them(function: str, may: bool) -> None:
    assert is_permitted(function, ["a.b", "x:y"]) is may


def test_the_next_attempt_is_new_although_the_word_about_the_last_is_on_its_way() -> None:
    registry = JobRegistry()
    first = job()
    registry.add(first)
    first.stage = JobStage.SETTLING
    second = job()
    second.properties = RequestProperties(attempt=2)

    assert registry.match(second, 1) is RequestMatch.NEW
    assert registry.match(job(), 1) is RequestMatch.COPY


def test_a_rate_limit_lets_a_second_of_starts_through_and_then_one_at_a_time() -> None:
    limit, now, starts = RateLimit(10.0), 1000.0, 0
    while limit.delay(now) == 0:
        limit.take(now)
        starts += 1

    assert starts in (9, 10, 11)
    assert limit.delay(now) == pytest.approx(0.1, abs=0.11)
    for _ in range(20):
        now += limit.delay(now)
        limit.take(now)
    assert now == pytest.approx(1002.0, abs=0.2)
