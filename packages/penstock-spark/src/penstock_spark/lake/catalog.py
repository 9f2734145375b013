"""The tables of a lake by name, for people: a name is the path below the lake, with `_` for `/`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import pyarrow.fs as pafs

from penstock.core.errors import NotFound
from penstock_spark.lake.delta import LakeTable
from penstock_spark.lake.storage import StorageLocation, storage_errors

_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class LakeCatalog:
    location: StorageLocation

    def tables(self) -> dict[str, LakeTable]:
        """All tables, in the order of their names."""
        found = {path.replace("/", "_"): path for path in sorted(self._paths())}
        return {name: LakeTable(self.location / path, name) for name, path in found.items()}

    def table(self, name: str) -> LakeTable:
        """A table by its name, or by its path or URL."""
        if "/" in name:
            found = LakeTable(StorageLocation.parse(name, self._options_for(name)), name)
        elif name not in (tables := self.tables()):
            known = ", ".join(tables) or "none"
            raise NotFound(f"the lake {self.location} has no table {name!r}; it has {known}")
        else:
            found = tables[name]
        if not found.exists():
            raise NotFound(f"{name}: no Delta table there")
        return found

    def _options_for(self, url: str) -> dict[str, str] | None:
        return self.location.storage_options if "://" in url else None

    def _paths(self) -> set[str]:
        if (root := self.location.path) is not None:
            found = set()
            for folder, folders, _ in os.walk(root):
                if _LOG in folders:
                    found.add(os.path.relpath(folder, root))
                    folders.clear()
            return found - {"."}
        selector = pafs.FileSelector("", allow_not_found=True, recursive=True)
        with storage_errors(self.location):
            files = self.location.filesystem().get_file_info(selector)
        return {
            path for each in files if (path := each.path.partition(f"/{_LOG}/")[0]) != each.path
        }
