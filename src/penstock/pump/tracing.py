"""What happened to a file: its way hop by hop, from the lake, without Spark.

A file is asked for by its name, by its path or the end of it, or by a pattern. Its rows in silver,
in the order they came to the broker, are its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import NotFound
from penstock.pipeline.lake import Lake
from penstock.pump.keeping import NAME
from penstock.pump.steps.columns import ANNOUNCEMENTS, SCHEMA

_SIGNS = "*?["


@dataclass(frozen=True, slots=True)
class Hop:
    """One message about the file: announced at an exchange, or reported by somebody."""

    at: datetime
    kind: str
    exchange: str
    relpath: str
    base_url: str
    event: str
    after: float  #: seconds since the file was first announced
    block: int | None = None
    blocks: int | None = None
    size: int | None = None
    code: int | None = None
    message: str | None = None
    host: str | None = None
    user: str | None = None
    seconds: float | None = None


def trace(data: Path, wanted: str, days: tuple[date, date] | None = None) -> list[Hop]:
    """The way of the files that are called so."""
    table = Lake.open(data / "lake", NAME).table(ANNOUNCEMENTS)
    files = [
        table.folder / file.path
        for file in table.log.files()
        if days is None or days[0].isoformat() <= file.day <= days[1].isoformat()
    ]
    if not files:
        raise NotFound(
            f"the lake below {data} has no announcements (yet): `penstock pump keep` has them kept,"
            " and `penstock pipeline run --flow penstock.pump.keeping:open_flow` puts them there"
        )
    found = [hop for path in files for hop in _hops(path, wanted)]
    return sorted(found, key=lambda hop: hop.at)


def _hops(path: Path, wanted: str) -> Iterator[Hop]:
    names = [name for name in SCHEMA.names if name != "day"]
    rows = pq.read_table(path, columns=names)
    if not any(sign in wanted for sign in _SIGNS):
        rows = rows.filter(_called(rows["relpath"], wanted.strip("/")))
    for row in rows.to_pylist():
        if row["relpath"] is not None and _matches(row["relpath"], wanted):
            yield _hop(row)


def _called(paths: pa.ChunkedArray, wanted: str) -> pa.ChunkedArray:
    """A first look at all rows at once."""
    return pc.fill_null(pc.ends_with(paths, pattern=wanted), False)


def _matches(relpath: str, wanted: str) -> bool:
    path, wanted = relpath.strip("/"), wanted.strip("/")
    if any(sign in wanted for sign in _SIGNS):
        return fnmatchcase(path, wanted) or fnmatchcase(path.rpartition("/")[2], wanted)
    return path == wanted or path.endswith("/" + wanted)


def _hop(row: dict[str, Any]) -> Hop:
    after = (row["at"] - row["moment"]).total_seconds()
    names = ("at", "kind", "exchange", "relpath", "base_url", "event", "block", "blocks", "size")
    told = ("code", "message", "host", "user", "seconds")
    return Hop(after=after, **{name: row[name] for name in (*names, *told)})
