"""`penstock pipeline letters`: the last messages that were none, with the reason and their bytes.

Read off the lake's files as they lie, newest first: no Spark is started for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.options import ConfigFile, Data, Overrides, effective

TABLE: Final = "silver.dead_letters"
#: Bytes that are shown of a message; `--json` has all of them.
_SHOWN: Final = 24


def letters(
    flow: Annotated[str, typer.Option("--flow", metavar="NAME", help="Whose.")] = "hives",
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="The last so many.")
    ] = 20,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="WORD", help="Only those of this reason.")
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line each, whole.")] = False,
) -> None:
    """Show the dead letters: messages that are none, why, and what was in them."""
    home = effective(file, pairs, data).settings.data
    found = list(islice(_newest_first(home, flow, reason), count))
    for row in found:
        typer.echo(json.dumps(_told(row)) if as_json else _line(row))
    if not found and not as_json:
        typer.echo(
            f"No dead letters of flow {flow}" + (f" with reason {reason}." if reason else ".")
        )


def _newest_first(home: Path, flow: str, reason: str | None) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    from penstock.pipeline.place import Place

    table = Place(home, flow).lake.table(TABLE)
    for file in reversed(table.log.files()):
        rows = (
            pq.ParquetFile(table.folder / file.path)
            .read()
            .sort_by([("received_at", "descending"), ("offset", "descending")])
        )
        yield from (row for row in rows.to_pylist() if reason in (None, row["reason"]))


def _told(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "received_at": row["received_at"].isoformat(),
        **{name: row[name] for name in ("stream", "offset", "topic", "reason")},
        "raw": None if row["raw"] is None else row["raw"].hex(),
    }


def _line(row: dict[str, Any]) -> str:
    raw = row["raw"] or b""
    more = f" … {len(raw)} bytes" if len(raw) > _SHOWN else ""
    came = row["received_at"].strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{came}  {row['reason']:<16} {row['topic']}  {raw[:_SHOWN].hex(' ')}{more}".rstrip()
