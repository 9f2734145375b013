"""The process that forks Spark's Python workers, with their libraries loaded: a Spark setting,
`spark.python.daemon.module`.

Spark's own daemon loads nothing, and every worker then loads Arrow, NumPy and PySpark for itself.
This one loads them before it forks: workers share the memory and start at once. A process with
several threads must not fork; these libraries start none when they are loaded, if those of NumPy
are limited to one thread (`session.py`).
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Final

from pyspark import daemon

PRELOADED: Final = ("pyarrow.compute", "pyarrow.parquet", "penstock_spark.bronze")


def preload(worker: str) -> None:
    """Load the modules of a kind of workers, and exempt them from garbage collection.

    A worker collects garbage after each task: it would walk over all modules, and write to pages
    that it shares with the others.
    """
    for name in (worker, *PRELOADED):
        import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    preload(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    daemon.manager()


if __name__ == "__main__":
    main()
