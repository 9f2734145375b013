"""What a worker has to load."""

from __future__ import annotations

import subprocess
import sys


def test_the_connector_loads_nothing_of_the_broker() -> None:
    program = (
        "import sys, penstock_spark\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('penstock.')}\n"
        "assert rooms <= {'pipeline', 'client', 'wire', 'core'}, rooms\n"
        "assert not {'pandas', 'aio_pika', 'asyncpg', 'h11'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_daemon_of_workers_loads_their_libraries_and_starts_no_thread() -> None:
    program = (
        "import gc, os, sys\n"
        "from penstock_spark.worker_daemon import preload\n"
        "preload('pyspark.worker')\n"
        "assert {'pyspark.worker', 'pyarrow.parquet'} <= set(sys.modules)\n"
        "import penstock_spark.connector.stream_reader\n"
        "assert not {'pandas', 'deltalake'} & set(sys.modules)\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "assert gc.get_freeze_count() > 10_000\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_arrow_loads_pandas_when_it_is_needed_and_not_before() -> None:
    program = (
        "import sys\n"
        "from penstock_spark.connector.source import defer_pandas\n"
        "defer_pandas()\n"
        "import numpy as np, pyarrow as pa\n"
        "pa.table({'a': np.arange(3), 'b': [1, 2, 3]})\n"
        "assert 'pandas' not in sys.modules\n"
        "frame = pa.table({'a': [1.5, None]}).to_pandas()\n"
        "assert pa.Table.from_pandas(frame)['a'].to_pylist() == [1.5, None]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
