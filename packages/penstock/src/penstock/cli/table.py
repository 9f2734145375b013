"""Tables on a terminal: no borders, bold headings, numbers to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def new_table(*headings: str, no_wrap: bool = False, **options: Any) -> Table:
    """Columns whose heading begins with > are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, **options)
    for heading in headings:
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if heading.startswith(">") else "left",
            overflow="fold",
            no_wrap=no_wrap,
        )
    return table


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.text import Text

    table = new_table(*headings)
    for row in rows:
        table.add_row(*map(Text, row))  # not markup, whatever a name looks like
    Console().print(table)
