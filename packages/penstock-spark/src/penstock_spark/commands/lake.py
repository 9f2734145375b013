"""`penstock lake`: lands streams in Delta tables, and lists, queries and restores tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AsJson, effective
from penstock.cli.table import print_table
from penstock.core.logs import escape_text
from penstock_spark.commands.land import Storage, land, parse_pairs
from penstock_spark.commands.options import parse_time

if TYPE_CHECKING:
    from penstock_spark.lake.catalog import LakeCatalog

LakeUrl = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="URL",
        envvar="PENSTOCK_LAKE",
        help="Where the tables are: a path, s3://, az:// or gs://. [default: lake in the data "
        "directory]",
    ),
]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Its name, path or URL.")]

app = typer.Typer(no_args_is_help=True, help="Land streams in Delta tables, and query tables.")
app.command()(land)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(metavar="SQL", help="For DuckDB.")],
    lake: LakeUrl = None,
    storage: Storage = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per row.")] = False,
) -> None:
    """Query tables by name, or by URL: SELECT count(*) FROM 's3://lake/orders'."""
    from penstock_spark.lake.sql import query_lake
    from penstock_spark.landing.records import json_text

    columns, rows = query_lake(_catalog(lake, storage), statement)
    if as_json:
        for row in rows:
            typer.echo(json_text(dict(zip(columns, row, strict=True))))
    elif columns:
        print_table(columns, ([_shown(value) for value in row] for row in rows))
        typer.echo(f"{len(rows):,} rows" if len(rows) != 1 else "1 row", err=True)


@app.command()
def tables(lake: LakeUrl = None, storage: Storage = None, as_json: AsJson = False) -> None:
    """List the tables of a lake."""
    catalog = _catalog(lake, storage)
    found: list[dict[str, Any]] = []
    for name, table in catalog.tables().items():
        size = table.size()
        found.append(
            {
                "name": name,
                "rows": size.rows,
                "files": size.files,
                "bytes": size.bytes,
                "version": table.version,
                "partition_by": list(table.partition_by),
                "location": str(table.location),
            }
        )
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not found:
        typer.echo(f"No tables in {catalog.location}. Try: penstock lake land --help")
    else:
        print_table(
            ("table", ">rows", ">files", ">bytes", ">version", "partitioned by"),
            (
                [
                    each["name"],
                    *(f"{each[key]:,}" for key in ("rows", "files", "bytes", "version")),
                    ", ".join(each["partition_by"]),
                ]
                for each in found
            ),
        )


@app.command()
def history(
    table: TableName,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="The number of the last ones.")
    ] = 20,
    lake: LakeUrl = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Show the versions of a table, the newest first: when, what, and from which offsets."""
    found = [_version(each) for each in _catalog(lake, storage).table(table).history(count)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    print_table(
        (">version", "time", "operation", "stream", "offsets"),
        (["" if value is None else _shown(value) for value in each.values()] for each in found),
    )


@app.command()
def restore(
    table: TableName,
    to: Annotated[
        str, typer.Argument(metavar="VERSION|TIME", help="From `penstock lake history`.")
    ],
    lake: LakeUrl = None,
    storage: Storage = None,
) -> None:
    """Make a former version the current one, by a new version.

    Messages that were landed since are not landed again.
    """
    found = _catalog(lake, storage).table(table)
    found.restore(int(to) if to.isdecimal() else parse_time(to))
    size = found.size()
    typer.echo(f"{found.name}: version {found.version} is as {to}: {size.rows:,} rows")


@app.command()
def optimize(table: TableName, lake: LakeUrl = None, storage: Storage = None) -> None:
    """Merge the small files of a table, while it is landed and read."""
    found = _catalog(lake, storage).table(table)
    done = found.optimize()
    typer.echo(f"{found.name}: {done.files_removed:,} files → {done.files_added:,}")


@app.command()
def vacuum(
    table: TableName,
    hours: Annotated[
        int,
        typer.Option(
            "--older-than", min=1, metavar="HOURS", help="Files that left the table before."
        ),
    ] = 168,
    lake: LakeUrl = None,
    storage: Storage = None,
) -> None:
    """Delete files that no current version needs. Older versions cannot be restored then."""
    found = _catalog(lake, storage).table(table)
    typer.echo(f"{found.name}: {found.vacuum(timedelta(hours=hours)):,} files deleted")


def _catalog(lake: str | None, storage: list[str] | None) -> LakeCatalog:
    from penstock_spark.lake.catalog import LakeCatalog
    from penstock_spark.lake.storage import StorageLocation

    where: str | Path = lake if lake is not None else effective().settings.data / "lake"
    return LakeCatalog(StorageLocation.parse(where, parse_pairs("--storage", storage)))


def _version(entry: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
    return {
        "version": entry["version"],
        "time": moment.strftime("%Y-%m-%d %H:%M:%SZ"),
        "operation": entry.get("operation"),
        "stream": entry.get("stream"),
        "offsets": entry.get("offsets"),
    }


def _shown(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return value.hex(" ")
        case datetime():
            return value.isoformat(" ", "milliseconds")
    return escape_text(str(value))
