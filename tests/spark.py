"""One Spark for all tests that ask for it: import `spark` into a `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
