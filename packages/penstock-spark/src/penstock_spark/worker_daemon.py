"""The process that forks Spark's Python workers, with their libraries loaded: a Spark setting,
`spark.python.daemon.module`.

Spark's own daemon loads nothing, and every worker then loads Arrow, pandas and PySpark for itself.
This one loads them before it forks: workers share the memory and start at once. A process with
several threads must not fork, so the libraries are told to start none.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Final

from pyspark import daemon

#: What reading a stream and writing files of the lake takes. Without pandas, which Arrow would load
#: at its first array: most workers do not need it.
PRELOADED: Final = (
    "pyarrow.compute",
    "pyarrow.parquet",
    "penstock_spark.bronze",
    "penstock_spark.connector.source",
)
#: Of NumPy's libraries, and of the memory pool of Arrow that is not used.
_WITHOUT_THREADS: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def preload(worker: str) -> None:
    """Load the modules of a kind of workers, and exempt them from garbage collection.

    A worker collects garbage after each task: it would walk over all modules, and write to pages
    that it shares with the others.
    """
    for name, value in _WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)
    from penstock_spark.connector.source import defer_pandas  # which loads NumPy

    defer_pandas()
    for name in (worker, *PRELOADED):
        import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    preload(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    daemon.manager()


if __name__ == "__main__":
    main()
