"""The parts of a worker that decide: what it remembers, how fast it goes, when it tries again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock.core.properties import Properties
from penstock.jobs.forms import Form, Written
from penstock.jobs.history.records import JobState
from penstock.jobs.model import Fake
from penstock.jobs.options import Options, read_options, write_options
from penstock.jobs.queue.carrier import Delivery
from penstock.jobs.queue.envelope import (
    Envelope,
    Telling,
    again,
    buried,
    raised,
    read_envelope,
    read_telling,
    request_properties,
    response_properties,
)
from penstock.jobs.queue.topology import kind_of, request_name, response_name
from penstock.jobs.queue.wishes import Wish, read_wish, write_wish
from penstock.jobs.work.calls import permitted
from penstock.jobs.worker.gait import Gait
from penstock.jobs.worker.job import Job, Stage
from penstock.jobs.worker.memory import Meeting, Memory
from penstock.jobs.worker.retrying import Backoff


def job(identity: str = "1", asked: bytes = b"a", run: int = 1, epoch: int = 1) -> Job:
    delivery = Delivery("fake", 1, epoch, asked, Properties(), False)
    return Job(Fake(identity), Form.JSON, Envelope(run=run), delivery)


# Memory.


def test_a_request_is_met_by_what_is_known_of_its_id() -> None:
    memory = Memory()
    first = job()
    assert memory.meet(first, 1) is Meeting.NEW
    memory.keep(first)

    assert memory.meet(job(), 1) is Meeting.COPY
    assert memory.meet(job(asked=b"b"), 1) is Meeting.OTHER
    assert memory.meet(job(epoch=2), 2) is Meeting.AGAIN  # its delivery is of a lost connection
    assert memory.meet(job("2"), 1) is Meeting.NEW


def test_what_was_answered_is_remembered_and_a_new_run_is_new() -> None:
    memory = Memory()
    first = job()
    memory.keep(first)
    first.stage, first.final = Stage.ANSWERED, True
    memory.answered(first)

    assert memory.meet(job(), 1) is Meeting.COPY
    assert memory.meet(job(asked=b"b"), 1) is Meeting.OTHER
    assert memory.meet(job(run=2), 1) is Meeting.NEW


def test_an_answer_that_may_not_have_arrived_is_kept_for_its_request() -> None:
    memory = Memory()
    first = job()
    memory.keep(first)
    first.final = True
    memory.unsure(first)

    assert memory.meet(job(), 1) is Meeting.AGAIN


def test_of_too_many_such_answers_the_oldest_are_forgotten_and_their_requests_done_again() -> None:
    memory = Memory()
    for number in range(10_001):
        each = job(str(number))
        memory.keep(each)
        each.final = True
        memory.unsure(each)

    assert memory.meet(job("0"), 1) is Meeting.NEW
    assert memory.meet(job("1"), 1) is Meeting.AGAIN


def test_a_wish_holds_for_what_was_asked_before_it() -> None:
    assert Wish("x", 100.5).holds(1, None)
    assert Wish("x", 100.5).holds(2, 99)
    assert not Wish("x", 100.5).holds(2, 100)
    assert not Wish("x", 100.5, run=1).holds(2, 1)


@given(st.text(), st.floats(0, 1e10), st.none() | st.integers(1, 1000))
def test_wishes_are_read_as_they_were_written(cancel: str, at: float, run: int | None) -> None:
    wish = Wish(cancel, at, run)
    assert read_wish(write_wish(wish)) == wish


@given(st.binary())
def test_what_is_no_wish_is_none(body: bytes) -> None:
    assert read_wish(body) is None or b"cancel" in body


# Gait.


def test_many_are_taken_once_jobs_are_seen_to_be_short() -> None:
    gait = Gait(2)
    assert gait.room(True) == 2
    changes = []
    for _ in range(40):
        gait.took(0.00001)
        changes.append(gait.change(1))

    assert [each for each in changes if each is not None] == [128]
    assert (gait.room(True), gait.room(False)) == (128, 2)


@pytest.mark.parametrize(("seconds", "most"), [(0.00001, 2048), (0.0005, 400), (0.0019, 128)])
def test_twice_as_many_as_long_as_they_stay_short(seconds: float, most: int) -> None:
    gait = Gait(2)
    paces = []
    for _ in range(20_000):
        gait.took(seconds)
        paces.append(gait.change(1))

    found = [each for each in paces if each is not None]
    assert found[0] == 128
    assert abs(found[-1] - most) <= 2
    assert all(later <= 2 * sooner for sooner, later in pairwise(found))


def test_one_in_a_hundred_that_is_held_up_does_not_end_that() -> None:
    gait = Gait(2)
    paces = []
    for number in range(20_000):
        gait.took(0.005 if number % 100 == 99 else 0.00001)
        paces.append(gait.change(1))

    assert max(each for each in paces if each is not None) > 1024


def test_one_that_takes_long_ends_that() -> None:
    gait = Gait(2)
    for _ in range(40):
        gait.took(0.001)
        gait.change(1)
    assert gait.brisk

    assert gait.slow() == 2
    assert gait.slow() is None
    assert gait.room(True) == 2


def test_a_pause_ends_when_there_is_room() -> None:
    gait = Gait(2)
    assert gait.pause() == 0
    assert gait.change(2) is None
    assert gait.change(1) == 2


# Trying again.


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_pauses_double_to_the_longest_and_are_spread(attempt: int, chance: float) -> None:
    due, milliseconds = Backoff(first=1, longest=300).pause(attempt, lambda: chance)

    assert due == min(2 ** (attempt - 1), 300)
    assert due * 500 <= milliseconds <= due * 1000


# What travels beside.


def test_an_envelope_survives_the_retries_of_its_request() -> None:
    options = Options(5, 7, 1.5, 60.0)
    envelope = Envelope("me", "c", options=options)
    said = request_properties(Written(b"", "text/xml"), "1", envelope)

    for attempt in (2, 3):
        said = again(said, attempt, 500)
        assert said.expiration == "500"
        found = read_envelope(said)
        assert (found.attempt, found.options, found.reply_to) == (attempt, options, "me")

    dead = buried(said, "no luck")
    assert (dead.expiration, dead.headers and dead.headers["job-error"]) == (None, "no luck")
    risen = read_envelope(raised(dead, 2))
    assert (risen.run, risen.attempt, risen.options) == (2, 1, options)


def test_headers_of_strangers_do_not_travel_on() -> None:
    said = Properties(headers={"x-death": [1], "job-list": [1], "job-attempts": 3})

    assert again(said, 2, 1).headers == {"job-attempts": 3, "job-attempt": 2}


def test_a_response_by_another_worker_tells_what_it_can() -> None:
    assert read_telling(Properties(), final=False, error=None).state is JobState.RUNNING
    assert read_telling(Properties(), final=True, error=None).state is JobState.DONE
    assert read_telling(Properties(), final=True, error="x").state is JobState.FAILED


def test_what_goes_with_a_response_is_read_as_it_was_written() -> None:
    told = Telling(JobState.RETRYING, 2, 3, "worker", "why")
    said = response_properties(Written(b"", "t"), Envelope(), told)

    assert read_telling(said, final=False, error=None) == told
    assert not said.persistent


@pytest.mark.parametrize("priority", [-1, 10])
def test_priorities_are_nought_to_nine(priority: int) -> None:
    with pytest.raises(PreconditionFailed):
        Options(priority)


@given(
    st.builds(
        Options,
        st.integers(0, 9),
        st.none() | st.integers(1, 100),
        st.none() | st.floats(0.1, 1e6),
        st.none() | st.floats(0.1, 1e6),
    )
)
def test_options_are_read_as_they_were_written(options: Options) -> None:
    assert read_options(write_options(options), options.priority) == options


def test_names_are_those_of_the_ichnaea_clients() -> None:
    assert request_name("build_models") == "ichnaea.build-models.request"
    assert response_name("fake") == "ichnaea.fake.response"
    assert kind_of("ichnaea.predict-models.request") == "predict_models"
    assert kind_of("amq.topic") is None


@pytest.mark.parametrize(
    ("function", "may"),
    [("a.b:c", True), ("a.b.d:c", True), ("a.bc:c", False), ("x:y", True), ("x:z", False)],
)
def test_modules_are_allowed_with_all_below_them(function: str, may: bool) -> None:
    assert permitted(function, ["a.b", "x:y"]) is may


def test_the_next_attempt_is_new_although_the_word_about_the_last_is_on_its_way() -> None:
    memory = Memory()
    first = job()
    memory.keep(first)
    first.stage = Stage.ANSWERED
    second = job()
    second.envelope = Envelope(attempt=2)

    assert memory.meet(second, 1) is Meeting.NEW
    assert memory.meet(job(), 1) is Meeting.COPY
