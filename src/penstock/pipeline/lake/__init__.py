"""Parquet by batch and day: whole or absent, replaceable, compacted while others read."""

from penstock.pipeline.lake.draft import Draft
from penstock.pipeline.lake.lake import BRONZE, Lake
from penstock.pipeline.lake.log import Entry, File
from penstock.pipeline.lake.pointer import Generations, Pointer
from penstock.pipeline.lake.table import Size, Table

__all__ = ["BRONZE", "Draft", "Entry", "File", "Generations", "Lake", "Pointer", "Size", "Table"]
