"""The servers that tests talk to, started when the first test asks and stopped at the end.

`broker` runs a test against Penstock and against RabbitMQ: what a test says of a broker has to be
true of both. A test of something only Penstock has asks for `penstock`. `mqtt_broker` does the
same for MQTT, with mosquitto as the other. All that run on Spark share one session, and all that
want a database of the embedded kind one server; what these need is loaded then.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.order import longest_first
from tests.paths import ROOT
from tests.peers import (
    Broker,
    Mosquitto,
    MqttBroker,
    PeerMissing,
    Penstock,
    Process,
    RabbitMQ,
    find_new_rabbitmq,
    free_port,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes is the machine's affair, and says nothing of the code. Whoever develops
# explores; what is handed in is judged by the same examples each time.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("patient")

# Programs that tests start find the modules of `tests`, which is spread over the packages.
_ROOTS = [ROOT, *sorted((ROOT / "packages").iterdir())]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*map(str, _ROOTS), *filter(None, [os.environ.get("PYTHONPATH")])]
)

# A Java that lives for minutes spends half of its time on compiling what it could as well interpret
# a little longer. Every `java` that a test starts reads this.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

#: Spark starts processes when it likes, and each takes seconds on a busy machine.
SPARK_SECONDS = 600


def pytest_collection(session: pytest.Session) -> None:
    """Collecting creates some million objects and no garbage."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collections of garbage leave out what was collected: half a second each."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        on_spark = isinstance(item, pytest.Function) and "spark" in item.fixturenames
        if on_spark and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS))
    yield
    longest_first(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which peers are missing, and how many tests were skipped for want of each."""
    skipped: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if "Debian" in reason:
            reason = reason.removeprefix("Skipped: ")
            skipped[reason] = skipped.get(reason, 0) + 1
    if skipped:
        terminalreporter.section("missing peers")
        for reason, tests in sorted(skipped.items()):
            terminalreporter.line(f"{tests:5} tests skipped: {reason}")


P = TypeVar("P")
S = TypeVar("S", bound="Server")

NewPenstock = Callable[..., Penstock]
NewMosquitto = Callable[..., Mosquitto]


class Server(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


def missing(peer: PeerMissing) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(str(peer))
    pytest.skip(str(peer))


def need_atheris() -> None:
    if importlib.util.find_spec("atheris") is None:
        missing(PeerMissing("atheris is not installed"))


def needed(peer: Callable[..., P], *arguments: Any, **options: Any) -> P:
    """A peer; who needs one that is not installed skips, or fails under `CI=true`."""
    try:
        return peer(*arguments, **options)
    except PeerMissing as error:
        missing(error)


@contextmanager
def running(server: S) -> Iterator[S]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    with running(Penstock(tmp_path_factory.mktemp("penstock"), mqtt=True)) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with running(needed(RabbitMQ, tmp_path_factory.mktemp("rabbitmq"))) as server:
        yield server


@pytest.fixture(scope="session")
def plugged_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ that hands out its streams in chunks, and speaks MQTT and AMQP 1.0 as well."""
    folder = tmp_path_factory.mktemp("rabbitmq")
    plugins = ("rabbitmq_stream", "rabbitmq_mqtt", "rabbitmq_amqp1_0")
    with running(needed(RabbitMQ, folder, plugins=plugins)) as server:
        yield server


@pytest.fixture(scope="session")
def new_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ 4, which only slow tests need."""
    program = needed(find_new_rabbitmq)
    with running(RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), (), program)) as server:
        yield server


@pytest.fixture(scope="session")
def new_plugged_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ 4 that hands out its streams in chunks."""
    program = needed(find_new_rabbitmq)
    folder = tmp_path_factory.mktemp("rabbitmq")
    with running(RabbitMQ(folder, ("rabbitmq_stream",), program)) as server:
        yield server


@pytest.fixture(
    scope="session",
    params=[
        "penstock",
        pytest.param("rabbitmq", marks=pytest.mark.peer),
        pytest.param("new_rabbitmq", marks=[pytest.mark.peer, pytest.mark.slow]),
    ],
)
def broker(request: pytest.FixtureRequest) -> Broker:
    server: Broker = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="session")
def mqtt_penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A Penstock that listens for MQTT and WebSockets beside AMQP."""
    with running(Penstock(tmp_path_factory.mktemp("penstock"), mqtt=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    folder = tmp_path_factory.mktemp("mosquitto")
    with running(needed(Mosquitto, folder, websocket=True)) as server:
        yield server


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("mqtt_penstock", id="penstock"),
        pytest.param("mosquitto", marks=pytest.mark.peer),
    ],
)
def mqtt_broker(request: pytest.FixtureRequest) -> MqttBroker:
    server: MqttBroker = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="session")
def java() -> None:
    """What tests with a Spark of their own ask for."""
    from penstock.core.java import java_problem

    if (problem := java_problem()) is not None:
        missing(PeerMissing(problem))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from penstock_spark import open_session
    from penstock_spark.session import use_file_manager

    folder = tmp_path_factory.mktemp("spark")
    chosen = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.local.dir": str(folder),
        # As in `flow_session`: Python workers are forks, and Hadoop starts no process for a file.
        "spark.python.daemon.module": "penstock_spark.worker_daemon",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }
    session = open_session("tests", "local[2]", chosen)
    session.sparkContext.setLogLevel("OFF")
    use_file_manager(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def embedded() -> Iterator[str]:
    """The URL of an embedded database server."""
    from penstock_store import EmbeddedServer
    from tests.databases import grounds_of_its_own

    with grounds_of_its_own() as folder, EmbeddedServer(folder / "pg") as server:
        yield server.url


@pytest.fixture(scope="session")
def embedded_template(embedded: str) -> str:
    """The URL of a database with the schema: `copy_of` it is a test's own."""
    from tests.databases import new_template

    return new_template(embedded)


@pytest.fixture(scope="module")
def object_store_bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a bucket of moto, which the environment of the module's tests leads to."""
    pytest.importorskip("moto.server", reason="missing: moto[s3]")
    pytest.importorskip("obstore", reason="missing: obstore")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("moto") / "log"
    process = Process(command, log, {**os.environ, "PYTHONWARNINGS": "ignore"})
    names = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        try:
            process.wait_for_port(port)
            request = urllib.request.Request(f"http://127.0.0.1:{port}/backups", method="PUT")
            urllib.request.urlopen(request, timeout=10).close()
            yield "backups"
        finally:
            process.end_group(signal.SIGKILL)


@pytest.fixture
def broker_url(broker: Broker) -> str:
    return broker.url


@pytest.fixture
def new_penstock(tmp_path: Path) -> Iterator[NewPenstock]:
    """Start a Penstock of the test's own, with the arguments and environment it wants."""
    started: list[Penstock] = []

    def start(*arguments: str, **options: Any) -> Penstock:
        server = Penstock(tmp_path / f"penstock-{len(started)}", *arguments, **options)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def new_mosquitto(tmp_path: Path) -> Iterator[NewMosquitto]:
    """Start a mosquitto of the test's own, with the settings it wants."""
    started: list[Mosquitto] = []

    def start(*settings: str, **options: Any) -> Mosquitto:
        folder = tmp_path / f"mosquitto-{len(started)}"
        server = needed(Mosquitto, folder, *settings, **options)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def name() -> str:
    """A name nobody else uses: one broker serves all tests."""
    return f"test.{uuid.uuid4().hex}"
