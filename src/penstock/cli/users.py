"""The users of a data directory, as the commands about them reach and show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import effective
from penstock.core.data_directory import private_directory

if TYPE_CHECKING:
    from penstock.broker.users import Users

Name = Annotated[str, typer.Argument(metavar="USER", help="The user.")]


def users_of(data: Path | None, file: Path | None) -> Users:
    """The users the configuration leads to; a new directory has one, guest."""
    from penstock.broker.users import Users

    directory = effective(file, data=data).settings.data
    private_directory(directory, traversable=True)
    users = Users(directory / "users.json")
    users.load()
    return users


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))  # a name may look like markup; it is none
    Console().print(shown)
