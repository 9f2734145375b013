"""Parquet by batch and day: whole or absent, replaceable, compacted while others read."""

from penstock_spark.lake.files import StagedBatch
from penstock_spark.lake.lake import BRONZE, GenerationPointer, Generations, Lake
from penstock_spark.lake.log import DataFile, TableLogEntry
from penstock_spark.lake.table import LakeTable, TableSize

__all__ = [
    "BRONZE",
    "DataFile",
    "GenerationPointer",
    "Generations",
    "Lake",
    "LakeTable",
    "StagedBatch",
    "TableLogEntry",
    "TableSize",
]
