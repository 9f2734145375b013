"""The lake: Delta tables in a directory or an object store; batches are atomic and replaceable."""

from penstock_spark.lake.data_file import DataFile, DataFileWriter
from penstock_spark.lake.delta import LakeTable, TableSize
from penstock_spark.lake.file_reader import CorruptFile
from penstock_spark.lake.lake import BRONZE, GenerationPointer, Generations, Lake, StagedBatch
from penstock_spark.lake.storage import StorageLocation

__all__ = [
    "BRONZE",
    "CorruptFile",
    "DataFile",
    "DataFileWriter",
    "GenerationPointer",
    "Generations",
    "Lake",
    "LakeTable",
    "StagedBatch",
    "StorageLocation",
    "TableSize",
]
