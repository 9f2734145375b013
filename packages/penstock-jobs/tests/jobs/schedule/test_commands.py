"""`penstock job schedule` and `penstock job workflow`: what they store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock_jobs.commands.job import app
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import JobOptions, JobState
from penstock_jobs.schedule.repository import ScheduleRepository, workflow_jobs
from penstock_store import Database
from tests.databases import copy_of

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as opened:
        yield opened


@pytest.fixture
def schedules(database: Database) -> ScheduleRepository:
    database.execute("TRUNCATE job, job_schedule CASCADE")
    return ScheduleRepository(database, JobRepository(database))


@pytest.fixture
def run(database: Database) -> Run:
    def invoke(*words: object, text: str = "") -> tuple[int, str]:
        arguments = [*map(str, words), "--database", database.url]
        told = CliRunner().invoke(app, arguments, input=text)
        return told.exit_code, told.stdout

    return invoke


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    """As `submit --debug` prints it."""
    words = ["submit", "call", "reports:monthly", "2026", "--id", "monthly", "--debug"]
    file = tmp_path / "monthly.json"
    file.write_text(CliRunner().invoke(app, words).stdout)
    return file


def test_a_request_waits_for_its_time(
    run: Run, schedules: ScheduleRepository, database: Database, request_file: Path
) -> None:
    at = datetime.now(UTC) + timedelta(days=1)
    options = ("--priority", 3, "--attempts", 2, "--limit", "1m", "--unique", "m", "--keep", "1d")
    assert run("schedule", "at", at.isoformat(), request_file, *options) == (0, "monthly\n")

    record = JobRepository(database).get("monthly")
    assert (record.state, record.kind, record.priority) == (JobState.SCHEDULED, "call", 3)
    assert schedules.claim() == []
    database.execute("UPDATE job_pending SET due_at = now()")
    [(pending, _)] = schedules.claim()
    assert json.loads(pending.body)["arguments"] == [2026]
    assert pending.options == JobOptions(3, 2, 60.0, keep=86_400.0, unique="m")
    assert run("schedule", "at", "tomorrow", request_file)[0] == 2
    again = request_file.read_text().replace("monthly", "other")
    assert run("schedule", "at", at.isoformat(), "-", "--unique", "m", text=again)[0] != 0

    assert run("schedule", "cancel", "monthly") == (0, "monthly: cancelled\n")
    assert JobRepository(database).get("monthly").state is JobState.CANCELLED
    stored = JobRepository(database).content("monthly", "request")
    assert json.loads(stored.body)["function"] == "reports:monthly"
    assert run("schedule", "cancel", "monthly")[0] != 0


def test_a_schedule_that_cannot_start_holds_up_no_other(
    run: Run, schedules: ScheduleRepository, database: Database, request_file: Path
) -> None:
    for name in ("bad", "good"):
        assert run("schedule", "add", name, request_file, "--every", "1h")[0] == 0
    database.execute("UPDATE job_schedule SET next_at = now()")
    database.execute("UPDATE job_schedule SET zone = 'Mars', every = NULL, cron = '@daily' "
                     "WHERE id = 'bad'")  # fmt: skip

    assert schedules.start_occurrences() == {"bad": "time zone 'Mars': unknown; as Europe/Madrid"}
    assert schedules.schedule("bad").last_job is None
    [(pending, _)] = schedules.claim()
    assert pending.id == schedules.schedule("good").last_job


@pytest.mark.parametrize("timing", [("--every", "1h"), ("--cron", "0 * * * *")])
def test_a_schedule_does_not_wait_for_a_time_that_a_clock_ahead_has_set(
    run: Run,
    schedules: ScheduleRepository,
    database: Database,
    request_file: Path,
    timing: tuple[str, str],
) -> None:
    now = datetime.now(UTC)
    ahead = ScheduleRepository(database, JobRepository(database), lambda: now + timedelta(days=3))
    assert run("schedule", "add", "hourly", request_file, *timing)[0] == 0
    assert schedules.correct_times() == {}
    database.execute("UPDATE job_schedule SET next_at = now()")
    ahead.start_occurrences()
    assert (schedules.schedule("hourly").next or now) > now + timedelta(days=2)
    started = schedules.schedule("hourly").last_job

    assert ahead.correct_times() == {}
    [moment] = schedules.correct_times().values()
    assert schedules.schedule("hourly").next == moment
    assert now < moment <= datetime.now(UTC) + timedelta(hours=1)
    assert schedules.correct_times() == {}

    database.execute("UPDATE job_schedule SET next_at = now() - interval '1 minute'")
    assert schedules.start_occurrences() == {}
    assert schedules.schedule("hourly").last_job != started


def test_a_claim_of_a_clock_that_was_ahead_expires(
    schedules: ScheduleRepository, database: Database
) -> None:
    wait = {"type": "fake", "duration": 0}
    schedules.add_pending(workflow_jobs({"id": "claimed", "chain": [wait]}, JobOptions()))
    assert len(schedules.claim()) == 1
    assert schedules.claim() == []
    database.execute("UPDATE job_pending SET claimed_at = now() + interval '3 days'")
    assert len(schedules.claim()) == 1


def test_clocks_that_differ_a_little_do_not_move_a_schedule(
    run: Run, schedules: ScheduleRepository, database: Database, request_file: Path
) -> None:
    assert run("schedule", "add", "often", request_file, "--every", "1s")[0] == 0
    late = datetime.now(UTC) - timedelta(seconds=50)
    behind = ScheduleRepository(database, JobRepository(database), lambda: late)
    assert behind.correct_times() == {}


def test_a_job_is_stored_while_another_waits_for_its_result(
    schedules: ScheduleRepository, database: Database
) -> None:
    wait = {"type": "fake", "duration": 0}
    schedules.add_pending(workflow_jobs({"id": "w", "chain": [wait, wait]}, JobOptions()))
    jobs = JobRepository(database)
    schedules.remove_pending(["w.1"])  # published
    database.execute("UPDATE job SET state = 'done', expires_at = now() WHERE id = 'w.1'")
    assert jobs.clean_up() == 0
    schedules.remove_pending(["w.2"])
    assert jobs.clean_up() == 1


def test_schedules_are_added_changed_paused_and_removed(
    run: Run, schedules: ScheduleRepository, request_file: Path
) -> None:
    cron = ("--cron", "0 6 1 * *", "--zone", "Europe/Madrid")
    status, text = run("schedule", "add", "monthly", request_file, *cron, "--priority", 9)
    assert (status, text.startswith("monthly: next at ")) == (0, True)
    added = schedules.schedule("monthly")
    assert added.next is not None
    assert added.next.astimezone(UTC).hour in (4, 5)  # six in Madrid
    assert (added.cron, added.zone, added.options.priority) == ("0 6 1 * *", "Europe/Madrid", 9)

    assert run("schedule", "add", "monthly", request_file, "--every", "15m")[0] != 0
    assert run("schedule", "add", "monthly", request_file, "--every", "15m", "--replace")[0] == 0
    assert schedules.schedule("monthly").every == 900.0
    assert "monthly  every 900 s  next at " in run("schedule", "list")[1]
    assert run("schedule", "pause", "monthly")[0] == 0
    assert "paused" in run("schedule", "list")[1]
    assert run("schedule", "resume", "monthly")[0] == 0
    assert not schedules.schedule("monthly").paused
    assert run("schedule", "remove", "monthly")[0] == 0
    assert run("schedule", "list") == (0, "")
    for wrong in (("--cron", "61 * * * *"), ("--cron", "@daily", "--zone", "Mars"), ()):
        assert run("schedule", "add", "x", request_file, *wrong)[0] != 0


def test_the_jobs_of_a_workflow_are_stored_and_shown(
    run: Run, schedules: ScheduleRepository, tmp_path: Path
) -> None:
    file = tmp_path / "river.json"
    wait = {"type": "fake", "duration": 0}
    file.write_text(json.dumps({"id": "river", "group": [wait, wait], "join": wait}))
    ids = ["river.1", "river.2", "river.join"]
    options = ("--priority", 2, "--attempts", 3, "--limit", "2m", "--keep", "2d")
    assert run("workflow", "submit", file, *options) == (0, "".join(f"{each}\n" for each in ids))

    shown = run("workflow", "show", "river")[1].splitlines()
    assert sorted(shown) == [f"{each}  fake  scheduled" for each in ids]
    first = [pending for pending, _ in schedules.claim()]
    assert sorted(each.id for each in first) == ids[:2]
    assert {each.options for each in first} == {JobOptions(2, 3, 120.0, keep=172_800.0)}
    assert run("workflow", "show", "lake")[0] != 0
    assert run("workflow", "submit", "-", text="no JSON")[0] != 0
