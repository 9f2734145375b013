"""`pytest --workers`: a run in several processes reports what a run in one would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.order import COSTLY, choose_file, costly_fixtures
from tests.paths import ROOT

TWO_FILES = {
    "test_a": """
        import pytest, warnings

        def test_passes():
            warnings.warn("worn out")

        def test_fails():
            assert 1 == 2
    """,
    "test_b": """
        import pytest

        @pytest.mark.skip(reason="not today")
        def test_is_skipped(): ...

        @pytest.fixture
        def broken():
            yield
            raise OSError("disk is full")

        def test_breaks_at_its_end(broken): ...
    """,
}

PROCESSES = """
    import os, pytest

    @pytest.fixture(scope="session")
    def server(tmp_path_factory):
        folder = tmp_path_factory.mktemp("server")
        (folder / "pid").write_text(str(os.getpid()))
        yield folder
        (folder / "stopped").touch()

    @pytest.mark.parametrize("number", range(3))
    def test_own_process(server, number):
        assert (server / "pid").read_text() == str(os.getpid())
        assert os.environ["PYTEST_XDIST_WORKER"] in ("gw0", "gw1")
        print("RAN", os.getpid(), server)
        pytest.fail("shows what was printed")
"""

CRASH = """
    import os, signal

    def test_before(): ...

    def test_is_killed():
        os.kill(os.getpid(), signal.SIGKILL)

    def test_after(): ...
"""


@pytest.fixture
def workers(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p tests.workers --workers 2 --rootdir={pytester.path}")
    return pytester


def test_outcomes_and_warnings_are_those_of_one_process(workers: pytest.Pytester) -> None:
    workers.makepyfile(**TWO_FILES)
    result = workers.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=1, skipped=1, errors=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*OSError: disk is full*", "*assert 1 == 2*", "*test_a.py:4: UserWarning: worn out*"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_run_without_a_failure_succeeds(workers: pytest.Pytester) -> None:
    workers.makepyfile(test_a="def test_one(): ...", test_b="def test_two(): ...")
    result = workers.runpytest_subprocess()
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK


def test_a_file_has_one_process_and_its_fixtures_are_closed(workers: pytest.Pytester) -> None:
    workers.makepyfile(test_a=PROCESSES, test_b=PROCESSES)
    result = workers.runpytest_subprocess()
    result.assert_outcomes(failed=6)
    ran = {line.split()[1]: line.split()[2] for line in result.outlines if line.startswith("RAN")}
    assert 1 <= len(ran) <= 2
    assert all((Path(folder) / "stopped").exists() for folder in ran.values())


def test_a_worker_that_dies_fails_its_test_alone(workers: pytest.Pytester) -> None:
    workers.makepyfile(test_a=CRASH, test_b="def test_other(): ...")
    result = workers.runpytest_subprocess()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*worker [01] ended with -9 in this test*"])


def test_no_test_begins_after_the_most_failures(workers: pytest.Pytester) -> None:
    failing = "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test_no(n): assert 0"
    workers.makepyfile(test_a=failing, test_b=failing, test_c=failing)
    result = workers.runpytest_subprocess("--maxfail=1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["failed"] < 1_000
    result.stdout.fnmatch_lines(["*stopping after * failures*"])


def test_servers_that_start_slowly_run_in_few_workers() -> None:
    files = [{"spark"}, {"spark", "embedded"}, {"embedded"}, set[str]()]
    assert choose_file(files, set(), []) == 0
    busy = [{"spark"}] * COSTLY["spark"]
    assert choose_file(files, set(), busy) == 2
    assert choose_file(files, {"spark"}, busy) == 0
    assert choose_file(files, set(), [*busy, *[{"embedded"}] * COSTLY["embedded"]]) == 3


def test_no_worker_is_idle_while_files_are_left() -> None:
    assert choose_file([{"spark"}], set(), [{"spark"}] * COSTLY["spark"]) == 0


def test_costly_fixtures_are_those_of_parameters_too(workers: pytest.Pytester) -> None:
    items = workers.getitems(
        """
        import pytest

        @pytest.fixture
        def session(spark): ...

        def test_direct(session): ...

        @pytest.mark.parametrize("broker", ["penstock", "rabbitmq"])
        def test_by_name(broker): ...
        """
    )
    assert costly_fixtures(items[:1]) == {"spark"}
    assert costly_fixtures(items[1:]) == {"rabbitmq"}
