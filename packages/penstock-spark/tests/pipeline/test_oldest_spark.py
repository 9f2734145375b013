"""The connector with the oldest PySpark that it supports; all other tests run with the newest.

Some of the connector's own tests run again, in a process whose path begins with that release.
`make test-spark-oldest` runs all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.fixtures import missing
from tests.peers import PeerMissing

ROOT = Path(__file__).parents[4]
HERE = Path(__file__).parent.relative_to(ROOT)
#: A batch, a query that continues where it ended, and both writers; each on Penstock.
TESTS = (
    "test_batch.py::test_a_message_is_a_row",
    "test_stream.py::test_a_query_goes_on_where_it_ended_whatever_the_starting_offsets",
    "test_write.py::test_a_row_is_a_message",
    "test_write.py::test_a_stream_is_carried_over",
)


@pytest.fixture
def oldest() -> str:
    """Its version."""
    allowed = "\n".join(requires("penstock-spark") or ())
    found = re.search(r"^pyspark\[sql\]>=([\d.]+)$", allowed, re.MULTILINE)
    assert found is not None, allowed
    return f"{found[1]}.0"


@pytest.fixture
def environment(java: None, oldest: str) -> dict[str, str]:
    place = ROOT / ".peers" / f"pyspark-{oldest}"
    if not place.is_dir():
        missing(PeerMissing(f"PySpark {oldest} is not installed (scripts/peers)"))
    others = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "PYSPARK_", "SPARK_"))
    }
    return {**others, "PYTHONPATH": str(place)}


def test_the_connector_reads_and_writes_with_the_oldest_spark(
    oldest: str, environment: dict[str, str], tmp_path: Path
) -> None:
    version = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    assert subprocess.check_output(version, env=environment, text=True, cwd=ROOT).strip() == oldest

    command = [sys.executable, "-m", "pytest", "-q", "-m", "not peer", "-p", "no:cacheprovider"]
    command += ["--basetemp", str(tmp_path / "tests"), *(f"{HERE / each}" for each in TESTS)]
    ran = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stdout[-5000:]
    assert re.search(rf"^{len(TESTS)} passed", ran.stdout, re.MULTILINE), ran.stdout[-2000:]
