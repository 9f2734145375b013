"""`register` on a session somebody else has made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import Penstock
from tests.pipeline.given import stream

pytestmark = pytest.mark.usefixtures("java")

#: Spark gives the process that plans a query ten seconds to start: a busy machine gets more tries.
PROGRAM = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from penstock_spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
url, name = sys.argv[1:]
while True:
    try:
        print(spark.read.format("penstock").options(url=url, streams=name).load().count())
        break
    except PySparkException as error:
        if "failed to connect back" not in str(error):
            raise
"""


def test_workers_have_what_is_installed_where_it_is_called(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    stream(penstock.url, name, 5)
    # A python3 on the path that has nothing installed, as beside an environment not activated.
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -I "$@"\n')
    bare.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    path = f"{tmp_path}{os.pathsep}{kept['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, penstock.url, name],
        env={**kept, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ran.stdout.split() == ["5"], ran.stderr
