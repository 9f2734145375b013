"""The lake: Parquet tables with a log of batches; batches are atomic and replaceable."""

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
