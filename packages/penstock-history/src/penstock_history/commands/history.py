"""`penstock history`: queries stored publications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, effective

if TYPE_CHECKING:
    from pathlib import Path

    from penstock_history.query import HistoryQuery

Url = Annotated[
    str, typer.Option(metavar="URL", envvar="PENSTOCK_URL", help="Broker, for --spark.")
]
Moment = Annotated[
    datetime | None, typer.Option(metavar="TIME", help="Exclusive; UTC without a time zone.")
]


def history(
    subscription: Annotated[
        str, typer.Argument(help="Publications to find: [class,eq,stock],[price,<,50]")
    ],
    after: Moment = None,
    before: Moment = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of publications.")] = 1000,
    spark: Annotated[
        bool, typer.Option("--spark", help="Query the whole stream with Spark.")
    ] = False,
    url: Url = "amqp://localhost",
    database: Database = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Print stored publications that satisfy a subscription, one per line, oldest first.

    The historian stores publications on request: `penstock historian`.
    """
    from penstock.content import parse_subscription
    from penstock_history.query import HistoryQuery

    settings = effective(file, pairs, data, None).settings
    wanted = parse_subscription(subscription, several=True)
    query = HistoryQuery(wanted, _utc(after), _utc(before))
    if spark:
        found = _on_spark(url, settings.data, query, limit)
    else:
        found = _in_database(database, settings.data, query)
    count = 0
    for moment, text in islice(found, limit):
        typer.echo(f"{moment:%Y-%m-%dT%H:%M:%SZ} {text}")
        count += 1
    if count == limit:
        typer.secho(f"the first {limit:,}; use --limit for more", err=True, dim=True)


def _in_database(
    url: str | None, data: Path, query: HistoryQuery
) -> Iterator[tuple[datetime, str]]:
    import penstock_store
    from penstock_history.archive import PublicationArchive

    with penstock_store.open(url, data) as database:
        for archived in PublicationArchive(database).query(query):
            yield archived.time.astimezone(UTC), archived.text


def _on_spark(
    url: str, data: Path, query: HistoryQuery, limit: int
) -> Iterator[tuple[datetime, str]]:
    from penstock_history import spark_table

    with _session() as session:
        spark_table.update_table(session, url, data)
        table = session.read.parquet(str(spark_table.table_path(data)))
        rows = spark_table.filter_publications(table, query).orderBy("offset").limit(limit)
        for row in rows.selectExpr("unix_micros(at) AS at", "text").toLocalIterator():
            yield datetime.fromtimestamp(row["at"] / 1e6, UTC), row["text"].removesuffix(";")


@contextmanager
def _session() -> Iterator[Any]:
    from penstock_spark import open_session

    session = open_session("history", "local[*]")
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _utc(moment: datetime | None) -> datetime | None:
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)
