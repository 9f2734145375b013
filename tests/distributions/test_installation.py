"""Each package from its wheel in an empty environment with its real dependencies, running.

`make dist` runs these tests, which download and install some gigabytes.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.databases import grounds_of_its_own
from tests.distributions.environment import BUILDING_SECONDS, Distribution, Environment
from tests.fixtures import running
from tests.peers import Penstock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * BUILDING_SECONDS)]

LISTEN: Final = [f"{scheme}://127.0.0.1:0" for scheme in ("amqp", "http", "mqtt", "padres")]
#: Package → what `penstock up` runs if it is installed.
PARTS: Final = {
    "penstock": {"broker"},
    "penstock-store": {"broker", "database"},
    "penstock-spark": {"broker"},
    "penstock-history": {"broker", "database", "history"},
    "penstock-hives": {
        *("broker", "database", "pipeline", "demo", "hives", "alerts", "dashboards")
    },
    "penstock-jobs": {"broker", "database", "jobs", "dashboards"},
    "penstock-pump": {"broker", "pump"},
}
SPARK: Final = """
import sys
from pyspark.sql import SparkSession
from penstock_spark import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
frame = spark.read.format("penstock").option("url", sys.argv[1]).option("streams", "reports")
print("rows", frame.load().count())
"""
TEST: Final = """
def test_a_broker_answers(penstock_broker):
    assert penstock_broker.url.startswith("amqp://")
    assert penstock_broker.published == []
"""


@pytest.fixture
def empty() -> Iterator[Environment]:
    """Where the embedded database can run as another user."""
    with grounds_of_its_own() as folder:
        folder.chmod(0o755)
        yield Environment(folder / "empty", with_pip=True)


def install(environment: Environment, distribution: Distribution) -> None:
    environment.install_with_dependencies(distribution.wheel)
    checked = environment.run(environment.python, "-m", "pip", "check")
    assert checked.returncode == 0, checked.stdout


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("package", PARTS)
def test_all_parts_of_a_package_start_and_stop(
    distributions: dict[str, Distribution], empty: Environment, package: str
) -> None:
    install(empty, distributions[package])
    listen = [word for url in LISTEN for word in ("--listen", url)]
    data = ("--data", empty.folder.parent / "data")
    command = (empty.folder / "bin" / "penstock", "up", "--hives", "2", *listen, *data)
    log = empty.folder / "errors"
    with log.open("w") as errors:
        up = subprocess.Popen(
            [*map(str, command)],
            cwd=empty.folder,
            env=empty.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert up.stdout is not None
        ready = up.stdout.readline()
        assert ready.startswith("penstock up ready: amqp://127.0.0.1:"), log.read_text()
        up.send_signal(signal.SIGINT)
        assert up.wait(BUILDING_SECONDS) == 0, log.read_text()
    finally:
        up.kill()
        up.communicate()
    told = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    started = {event["part"] for event in told if event["event"] == "running"}
    assert started == PARTS[package]


@pytest.mark.usefixtures("java")
def test_spark_reads_a_stream(
    distributions: dict[str, Distribution], empty: Environment, tmp_path: Path
) -> None:
    install(empty, distributions["penstock-spark"])
    with running(Penstock(tmp_path)) as broker:
        sent = empty.penstock("pub", "--url", broker.url, "--stream", "reports", "x", "-n", "3")
        assert sent.returncode == 0, sent.stderr
        read = empty.run(empty.python, "-c", SPARK, broker.url)
    assert "rows 3" in read.stdout, read.stderr


def test_the_plugin_gives_a_test_a_broker(
    distributions: dict[str, Distribution], empty: Environment
) -> None:
    install(empty, distributions["pytest-penstock"])
    (empty.folder / "test_own.py").write_text(TEST)
    done = empty.run(empty.python, "-m", "pytest", "-q", "test_own.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_broker_serves_the_site_from_its_wheel(
    distributions: dict[str, Distribution], empty: Environment
) -> None:
    install(empty, distributions["penstock"])
    found = empty.run(
        *(empty.python, "-c"),
        "from penstock.server.management.documentation import site_folder;"
        "print(site_folder() / 'index.html')",
    ).stdout.strip()
    assert Path(found).is_file(), "`make dist` builds the site before the wheels"
    assert str(empty.folder) in found
