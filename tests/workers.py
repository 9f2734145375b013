"""`pytest --workers 5`: the tests in five processes, each file as a whole in one of them.

The parent collects and then forks, so each worker has all tests and all libraries from its first
moment. The workers of pytest-xdist each collect for themselves, which takes some 30 s of processor
time for every worker.

A free worker takes the next file that `tests/order.py` chooses. It asks for it before it runs
the last test of its file, since pytest keeps those fixtures that the test after a test needs. The
parent reports the results of its workers. If a worker dies, the test that it ran has failed, and a
new worker runs those that were left.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final

import pytest

from tests.order import choose_file, costly_fixtures

#: The variable that pytest-xdist sets: plugins know by it that others run beside them.
WORKER_VARIABLE: Final = "PYTEST_XDIST_WORKER"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers", type=int, default=0, metavar="N", help="run the tests in N processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    workers = session.config.getoption("workers")
    if not workers or session.config.option.collectonly or session.testsfailed:
        return None
    return _Dispatcher(session).run(workers)


@dataclass(eq=False)
class _Worker:
    """A worker, as its parent sees it."""

    number: int
    pid: int
    connection: Connection
    assigned: deque[int] = field(default_factory=deque)  #: tests that have not begun
    current: int | None = None
    fixtures: set[str] = field(default_factory=set)  #: the costly ones that it has
    has_finished: bool = False


class _Dispatcher:
    """Gives files to workers. Tests are numbers: every process has the same list of them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        numbered = enumerate(session.items)
        self._files = [
            [number for number, _ in tests]
            for _, tests in groupby(numbered, lambda each: each[1].path)
        ]
        self._fixtures = [
            costly_fixtures([session.items[number] for number in file]) for file in self._files
        ]
        self._workers: list[_Worker] = []
        self._is_stopping = False
        # The folder that the workers' own are in.
        self._folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self, workers: int) -> bool:
        try:
            for number in range(min(workers, len(self._files))):
                if not self._start(number):
                    return True  # in the worker, when it has run its tests
            while self._workers:
                for connection in wait([worker.connection for worker in self._workers]):
                    worker = next(each for each in self._workers if each.connection is connection)
                    if self._hear(worker):
                        continue
                    if not self._start(worker.number):
                        return True
        finally:
            for worker in self._workers:
                worker.connection.close()
                os.waitpid(worker.pid, 0)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        return True

    def _start(self, number: int) -> bool:
        """Fork a worker. False in the worker, at its end."""
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            theirs.close()
            self._workers.append(_Worker(number, pid, ours))
            return True
        ours.close()
        for other in self._workers:
            other.connection.close()
        self._workers.clear()
        folder = self._folder / f"worker-{number}"
        folder.mkdir(exist_ok=True)
        self._session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        os.environ[WORKER_VARIABLE] = f"gw{number}"
        _WorkerSession(self._session, theirs).run()
        return False

    def _hear(self, worker: _Worker) -> bool:
        """Handle a message of a worker. False if it died, and a new one is to take its place."""
        try:
            kind, data = worker.connection.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        match kind:
            case "ask":
                tests = self._next_file(worker) if self._files and not self._is_stopping else []
                worker.assigned += tests
                with suppress(OSError):
                    worker.connection.send(tests)
            case "start":
                worker.current = data
                worker.assigned.remove(data)
            case "report":
                self._report(data)
            case "warning":
                self._session.config.hook.pytest_warning_recorded.call_historic(
                    kwargs={**data, "warning_message": _warning(*data["warning_message"])}
                )
            case "finish":
                worker.has_finished = True
        return True

    def _next_file(self, worker: _Worker) -> list[int]:
        others = [each.fixtures for each in self._workers if each is not worker]
        place = choose_file(self._fixtures, worker.fixtures, others)
        worker.fixtures |= self._fixtures.pop(place)
        return self._files.pop(place)

    def _report(self, data: dict[str, Any]) -> None:
        hook = self._session.config.hook
        report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
        if self._session.shouldfail and not self._is_stopping:
            self._is_stopping = True
            for worker in self._workers:
                with suppress(OSError):
                    worker.connection.send([])

    def _bury(self, worker: _Worker) -> bool:
        self._workers.remove(worker)
        worker.connection.close()
        _, status = os.waitpid(worker.pid, 0)
        if worker.has_finished or self._is_stopping:
            return True
        number = worker.assigned.popleft() if worker.current is None else worker.current
        test = self._session.items[number]
        reason = (
            f"worker {worker.number} ended with {os.waitstatus_to_exitcode(status)} in this test"
        )
        self._session.config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(test.nodeid, test.location, {}, "failed", reason, "call")
        )
        if worker.assigned:
            self._files.insert(0, list(worker.assigned))
            self._fixtures.insert(0, set())
        return False


class _WorkerSession:
    """What a worker does: it runs the tests that it is given, and tells what became of them."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self._session = session
        self._connection = connection

    def run(self) -> None:
        plugins = self._session.config.pluginmanager
        for name in ("terminalreporter", "lfplugin", "nfplugin"):
            if plugins.hasplugin(name):
                plugins.unregister(name=name)
        plugins.register(self)
        capture: Any = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()  # what it writes to is everybody's
        capture.start_global_capturing()
        capture.suspend_global_capture()
        # Processes that a test starts through `multiprocessing` would load the program `pytest`.
        sys.modules["__main__"].__dict__.pop("__file__", None)
        with suppress(EOFError, OSError):
            self._run_files()
            self._connection.send(("finish", None))

    def _run_files(self) -> None:
        items = self._session.items
        tests = self._ask()
        while tests:
            next_tests: list[int] = []
            for number, next_number in zip(tests, [*tests[1:], None], strict=True):
                if next_number is None:
                    next_tests = self._ask()
                    next_number = next_tests[0] if next_tests else None
                elif self._connection.poll():
                    return  # unasked, it means to stop
                self._connection.send(("start", number))
                self._session.config.hook.pytest_runtest_protocol(
                    item=items[number],
                    nextitem=None if next_number is None else items[next_number],
                )
            tests = next_tests

    def _ask(self) -> list[int]:
        self._connection.send(("ask", None))
        tests: list[int] = self._connection.recv()
        return tests

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._connection.send(("report", data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        if when != "runtest":
            return  # of the collection, which the parent knows
        of = warning_message
        plain = (str(of.message), of.category.__name__, of.filename, of.lineno)
        data = {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", data))


def _warning(message: str, category: str, file: str, line: int) -> warnings.WarningMessage:
    """A category that another process knows may be none that can be imported here."""
    return warnings.WarningMessage(message, type(category, (Warning,), {}), file, line)
