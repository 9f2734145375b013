"""The engine's small parts, each alone: claims, checkpoints, progress, faults, cuts. No Spark."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PythonException

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import AccessRefused, ConfigurationError, ResourceLocked
from penstock_spark.batch_processor import open_checkpoint
from penstock_spark.bronze import BronzeBatch, open_table
from penstock_spark.directory import FlowDirectory, FlowLock, FlowLocks
from penstock_spark.errors import DataLost
from penstock_spark.lake import DataFile, Lake
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.replay import group_files
from penstock_spark.runner import QueryFailed, classify_failure
from penstock_spark.status import flow_metrics
from penstock_store import StoreUnavailable
from tests.peers import Penstock
from tests.pipeline.given import delete, stream

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def kept(batch: int, rows: int = 100) -> BronzeBatch:
    return BronzeBatch(batch, rows, (), {"sensors": 100 * batch + 100}, NOON)


def commit_batch(lake: Lake, batch: int, ends: dict[str, int]) -> None:
    table, _ = open_table(lake)
    positions = {f"{lake.flow}/offset/{stream}": end for stream, end in ends.items()}
    table.commit(lake.flow, batch, (), transactions=positions)


def file_of(number: int, rows: int, first: int) -> DataFile:
    day: dict[str, str | None] = {"day": "2026-11-15"}
    return DataFile(f"{number:03}", rows, 1, day, {"batch": first}, {"batch": number})


class TestClaims:
    def test_one_holder_at_a_time(self, tmp_path: Path) -> None:
        locks = FlowLocks(tmp_path, "tally")

        with (
            locks.hold(FlowLock.RUNNING),
            pytest.raises(ResourceLocked, match=f"process {os.getpid()}"),
            FlowLocks(tmp_path, "tally").hold(FlowLock.RUNNING, wait=False),
        ):
            pass

    def test_claims_of_other_kinds_and_flows_are_free(self, tmp_path: Path) -> None:
        with (
            FlowLocks(tmp_path, "tally").hold(FlowLock.RUNNING),
            FlowLocks(tmp_path, "tally").hold(FlowLock.BATCH, wait=False),
            FlowLocks(tmp_path, "other").hold(FlowLock.RUNNING, wait=False),
        ):
            assert FlowLocks(tmp_path, "tally").held(FlowLock.BATCH)

    def test_looking_takes_nothing(self, tmp_path: Path) -> None:
        locks = FlowLocks(tmp_path, "tally")

        assert not locks.held(FlowLock.RUNNING)
        with locks.hold(FlowLock.RUNNING, wait=False):
            assert locks.held(FlowLock.RUNNING)
        assert not locks.held(FlowLock.RUNNING)


class TestCheckpoint:
    def test_a_first_one_begins_at_nought(self, tmp_path: Path) -> None:
        found = open_checkpoint(tmp_path / "checkpoint", Lake(tmp_path / "lake", "tally"))

        assert found.number(0) == 0
        assert found.starting == {}

    def test_one_over_a_lake_with_messages_begins_behind_them(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path / "lake", "tally")
        commit_batch(lake, 41, {"sensors": 120})

        found = open_checkpoint(tmp_path / "checkpoint", lake)

        assert found.number(0) == 42
        assert found.starting == {"sensors": 120}

    def test_it_keeps_its_numbers(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path / "lake", "tally")
        first = open_checkpoint(tmp_path / "checkpoint", lake)
        commit_batch(lake, 41, {"sensors": 120})

        assert open_checkpoint(tmp_path / "checkpoint", lake) == first

    def test_another_querys_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "metadata").write_text('{"id": "another"}')

        with pytest.raises(ConfigurationError, match="another query"):
            open_checkpoint(tmp_path, Lake(tmp_path / "lake", "tally"))


class TestProgress:
    def test_nothing_is_known_before_the_first_batch(self, tmp_path: Path) -> None:
        assert FlowProgress(tmp_path, "tally").last_batch() is None
        assert FlowProgress(tmp_path, "tally").run_status() is None

    def test_the_last_batch_is_told_with_totals(self, tmp_path: Path) -> None:
        progress = FlowProgress(tmp_path, "tally")
        progress.record_batch(kept(0), 0.1, 0.2, 1000.0)
        progress.record_batch(kept(1, rows=50), 0.1, 0.4, 1001.0)

        done = progress.last_batch()

        assert done is not None
        assert (done.batch, done.rows, done.total_rows, done.total_batches) == (1, 50, 150, 2)
        assert done.seconds == pytest.approx(0.5)
        assert done.ends == {"sensors": 200}
        assert done.newest == NOON.timestamp()

    def test_a_batch_is_as_far_behind_as_its_newest_message_is_old(self, tmp_path: Path) -> None:
        done = FlowProgress(tmp_path, "tally").record_batch(
            kept(0), 0.1, 0.2, NOON.timestamp() + 1.5
        )

        assert done.behind == pytest.approx(1.5)

    def test_the_rate_is_of_late(self, tmp_path: Path) -> None:
        progress = FlowProgress(tmp_path, "tally")
        for second in range(300):
            done = progress.record_batch(kept(second, rows=1000), 0.1, 0.2, 1000.0 + second)
        assert done.rate == pytest.approx(1000, rel=0.01)
        for second in range(300, 600):
            done = progress.record_batch(kept(second, rows=10), 0.1, 0.2, 1000.0 + second)
        assert done.rate == pytest.approx(10, rel=0.01)

    def test_a_state_has_its_reason(self, tmp_path: Path) -> None:
        FlowProgress(tmp_path, "tally").set_state(RunState.WAITING, 12.0, "no broker", 3)

        found = FlowProgress(tmp_path, "tally").run_status()

        assert found is not None
        assert (found.state, found.reason, found.restarts) == (RunState.WAITING, "no broker", 3)

    def test_metrics_tell_the_same(self, tmp_path: Path, penstock: Penstock) -> None:
        directory = FlowDirectory(tmp_path, "tally")
        progress = FlowProgress(directory.progress, "tally")
        progress.set_state(RunState.RUNNING, 1000.0)
        progress.record_batch(kept(4), 0.1, 0.2, NOON.timestamp() + 2)

        stream(penstock.url, "sensors", 600)
        found = flow_metrics(directory, penstock.url)

        flow = {"flow": "tally"}
        assert found.get_sample_value("penstock_pipeline_running", flow) == 1
        assert found.get_sample_value("penstock_pipeline_messages_total", flow) == 100
        assert found.get_sample_value("penstock_pipeline_batch", flow) == 4
        assert found.get_sample_value("penstock_pipeline_lag_seconds", flow) == pytest.approx(2)
        ends = {**flow, "stream": "sensors"}
        assert found.get_sample_value("penstock_pipeline_next_offset", ends) == 500
        assert found.get_sample_value("penstock_pipeline_latest_offset", ends) == 600
        assert found.get_sample_value("penstock_pipeline_lag_messages", ends) == 100
        delete(penstock.url, "sensors")

    def test_the_lag_is_left_out_while_the_broker_is_away(self, tmp_path: Path) -> None:
        directory = FlowDirectory(tmp_path, "tally")
        FlowProgress(directory.progress, "tally").record_batch(kept(4), 0.1, 0.2, 1000.0)

        found = flow_metrics(directory, "amqp://127.0.0.1:9")

        ends = {"flow": "tally", "stream": "sensors"}
        assert found.get_sample_value("penstock_pipeline_next_offset", ends) == 500
        assert found.get_sample_value("penstock_pipeline_lag_messages", ends) is None


class TestFaults:
    def test_a_database_that_is_away_passes(self) -> None:
        fault = classify_failure(
            RuntimeError("what Spark says"), StoreUnavailable("no database answers")
        )

        assert fault.transient
        assert not fault.permanent

    def test_a_mistake_in_a_flow_is_raised_as_it_was(self) -> None:
        mistake = KeyError("colour")

        fault = classify_failure(RuntimeError("what Spark says"), mistake)

        assert fault.error is mistake
        assert not fault.transient

    def test_a_broker_that_is_away_is_known_by_its_traceback(self) -> None:
        text = (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Error\n"
            "Traceback (most recent call last):\n"
            '  File "x.py", line 1, in latestOffset\n'
            "penstock.client.errors.BrokerUnreachable: no broker at 127.0.0.1:5672\n"
            " SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 1]\n"
        )

        fault = classify_failure(PythonException(text), None)

        assert fault.transient
        assert fault.reason == "BrokerUnreachable: no broker at 127.0.0.1:5672"

    def test_a_broker_that_is_away_before_the_query_passes_too(self) -> None:
        away = BrokerUnreachable("127.0.0.1", 5672, "Connection refused")

        fault = classify_failure(away, None)

        assert fault.transient
        assert fault.error is away

    def test_a_machine_too_busy_to_start_a_worker_may_be_less_so(self) -> None:
        text = "[STREAM_FAILED] terminated: Python worker failed to connect back. SQLSTATE: XXKST"

        assert classify_failure(PythonException(text), None).transient

    def test_so_is_an_error_of_pythons_own(self) -> None:
        fault = classify_failure(
            PythonException("Failed: Traceback\nConnectionResetError: by peer\n"), None
        )

        assert fault.transient

    def test_a_stream_nobody_has_declared_yet_may_come(self) -> None:
        text = "Failed: Traceback\npenstock.core.errors.NotFound: there is no stream 'a'\n"

        assert classify_failure(PythonException(text), None).transient

    @pytest.mark.parametrize("kind", [DataLost, AccessRefused, ConfigurationError])
    def test_what_only_a_person_can_mend_is_told_by_its_name(self, kind: type[Exception]) -> None:
        text = f"Query failed\n{kind.__module__}.{kind.__name__}: stream 'a': gone\n"

        fault = classify_failure(PythonException(text), None)

        assert fault.permanent
        assert type(fault.error) is kind
        assert str(fault.error) == "stream 'a': gone"

    def test_what_a_task_met_is_known_by_its_traceback(self) -> None:
        text = "Job aborted\nTraceback:\npenstock_spark.errors.DataLost: stream 'a': gone\n"

        fault = classify_failure(RuntimeError("what Spark says"), PythonException(text))

        assert isinstance(fault.error, DataLost)

    def test_anything_else_is_told_in_sparks_words(self) -> None:
        fault = classify_failure(PythonException("out of memory\nat line 1"), None)

        assert isinstance(fault.error, QueryFailed)
        assert fault.reason == "out of memory"


class TestCuts:
    @given(
        sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
        rows=st.integers(1, 100),
        overlap=st.sets(st.integers(0, 29)),
    )
    def test_no_batch_is_in_two_groups_and_none_is_left_out(
        self, sizes: list[int], rows: int, overlap: set[int]
    ) -> None:
        files = [
            # Some begin with the batch the one before ended with, as over midnight.
            file_of(number, size, number - (number in overlap))
            for number, size in enumerate(sizes)
        ]

        groups = list(group_files(files, rows))

        assert [file for group in groups for file in group.files] == files
        for before, after in pairwise(groups):
            assert before.last < after.first
        assert sum(group.rows for group in groups) == sum(sizes)

    def test_groups_are_about_as_large_as_wanted(self) -> None:
        files = [file_of(number, 10, number) for number in range(10)]

        assert [group.rows for group in group_files(files, 30)] == [30, 30, 30, 10]


def test_a_flow_needs_a_name_that_files_can_have(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="invalid flow name"):
        FlowDirectory(tmp_path, "../elsewhere")
