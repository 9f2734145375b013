"""SQL over the tables of a lake, by DuckDB. It reads only the columns and files that it needs."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.core.errors import ConfigurationError, NotFound, PreconditionFailed
from penstock_spark.lake.catalog import LakeCatalog
from penstock_spark.lake.delta import LakeTable

_WORD: Final = re.compile(r'"([^"]+)"|\b([A-Za-z_][A-Za-z0-9_.-]*)')
#: A table by its URL: FROM 's3://lake/orders'.
_URL: Final = re.compile(r"\b(FROM|JOIN)\s+'([^']*/[^']*)'", re.IGNORECASE)


def query_lake(catalog: LakeCatalog, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and the rows of the answer."""
    try:
        import duckdb
    except ImportError:
        raise ConfigurationError(
            "penstock lake sql needs DuckDB: pip install 'penstock-spark[sql]'"
        ) from None
    with duckdb.connect() as connection:
        named: dict[str, LakeTable] = {}

        def by_url(found: re.Match[str]) -> str:
            try:
                table = catalog.table(found[2])
            except NotFound:
                return found[0]  # another file, which DuckDB knows
            name = f"table_{len(named)}"
            named[name] = table
            return f"{found[1]} {name}"

        text = _URL.sub(by_url, statement)
        words = {quoted or plain for quoted, plain in _WORD.findall(statement)}
        lower = {word.lower() for word in words}
        tables = catalog.tables()
        named |= {name: table for name, table in tables.items() if name.lower() in lower}
        for name, table in named.items():
            connection.register(name, table.dataset())
        try:
            result = connection.execute(text)
            columns = [each[0] for each in result.description or []]
            return columns, result.fetchall()
        except duckdb.CatalogException as error:
            known = ", ".join(tables) or "none"
            raise NotFound(
                f"{error}\nThe lake {catalog.location} has these tables: {known}"
            ) from None
        except duckdb.Error as error:
            raise PreconditionFailed(str(error)) from None
