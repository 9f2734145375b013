"""Options that the job commands share, and the readers of their files."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import effective
from penstock.core.errors import ConfigurationError, NotFound
from penstock_jobs.errors import JobFormatError

if TYPE_CHECKING:
    from penstock_jobs.model import Agings, Dataset
    from penstock_jobs.queue.topology import Durability
    from penstock_store import Database

#: The names of trials in a folder.
_TRIALS: Final = "env%column%-%aging%.txt"
#: A heading of the help.
ICHNAEA: Final = "Options of the Ichnaea commands"

BrokerUrl = Annotated[
    str,
    typer.Option(
        "--url",
        "--uri",
        metavar="URL",
        envvar="PENSTOCK_URL",
        help="The broker: amqp://, amqps:// or amqp+1.0://.",
    ),
]
Compatible = Annotated[
    bool,
    typer.Option(
        "--compatible/--durable",
        help="Declare queues as the Ichnaea clients do, transient and unbounded, or durable.",
    ),
]
ConnectionType = Annotated[
    str | None,
    typer.Option(
        "--connection-type",
        metavar="NAME",
        hidden=True,
        help="Qpid means AMQP 1.0, RabbitMQ means 0-9-1; prefer the scheme of the URL.",
    ),
]


def broker_url(url: str, connection_type: str | None) -> str:
    if connection_type is None or connection_type.lower() == "rabbitmq":
        return url
    if connection_type.lower() != "qpid":
        raise typer.BadParameter(f"--connection-type {connection_type}: RabbitMQ or Qpid")
    scheme, _, rest = url.partition("://")
    return f"{scheme}+1.0://{rest}" if scheme in ("amqp", "amqps") else url


def durability(compatible: bool) -> Durability:
    from penstock_jobs.queue.topology import Durability

    return Durability.ICHNAEA if compatible else Durability.DURABLE


@contextmanager
def history(url: str | None, data: Path | None) -> Iterator[Database]:
    import penstock_store

    with penstock_store.open(url, effective(None, None, data).settings.data) as database:
        yield database


def new_id() -> str:
    return f"penstock.{uuid.uuid4().hex}"


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}") from error


def read_dataset(path: Path, form: str = "Csv", *, foreign: bool = False) -> Dataset:
    """With `foreign`, columns that the models do not know stay in the data set."""
    from penstock_jobs.formats import xml
    from penstock_jobs.science.matrix import read_csv

    if form.lower() == "csv":
        return read_csv(read_file(path), foreign=foreign)
    if form.lower() != "xml":
        raise typer.BadParameter(f"--dataset-format {form}: Csv or Xml")
    try:
        return xml.read_dataset(read_file(path))
    except JobFormatError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def read_agings(pattern: str, positions: str = "", *, foreign: bool = False) -> Agings:
    """From a folder, or a pattern such as `aging/env%column%-%aging%.txt`. `positions` maps names
    of seasons that are not English or Catalan. With `foreign`, trials of columns that the models
    do not know are read, too."""
    from penstock_jobs.model import Aging
    from penstock_jobs.science.decay import read_trials
    from penstock_jobs.science.indicators import column_name, indicator, season

    path = Path(pattern)
    folder, name = (path, _TRIALS) if path.is_dir() else (path.parent, path.name)
    expression = re.escape(name).replace("%column%", "(?P<column>.+)")
    expression = expression.replace("%aging%", "(?P<aging>[^-]+)")
    known = _positions(positions)
    found: dict[str, tuple[Aging, ...]] = {}
    for file in sorted(folder.glob("*")):
        match = re.fullmatch(expression, file.name, re.IGNORECASE)
        if match is None:
            continue
        column = indicator(match["column"]) or (column_name(match["column"]) if foreign else None)
        if column is None:
            continue
        when = season(match["aging"])
        position = known.get(match["aging"].lower(), None if when is None else when.position)
        if position is not None:
            aging = Aging(read_trials(read_file(file), file.name), position)
            found[column] = (*found.get(column, ()), aging)
    if not found:
        raise NotFound(f"{pattern}: no files env<NAME>-<SEASON>.txt of indicators")
    return found


def parse_fake(text: str) -> tuple[float, float]:
    """`DURATION:INTERVAL`, in seconds."""
    duration, _, interval = text.partition(":")
    try:
        times = float(duration), float(interval or 1)
    except ValueError:
        raise typer.BadParameter(f"--fake {text}: must be DURATION:INTERVAL, as 10:1") from None
    if not (0 <= times[0] < math.inf and 0 < times[1] < math.inf):
        raise typer.BadParameter(f"--fake {text}: times must be positive")
    return times


def _positions(text: str) -> dict[str, float]:
    """From `Estiu:0.5,Hivern:0`, by lower-case name."""
    try:
        pairs = [pair.replace("=", ":").rpartition(":") for pair in text.split(",") if pair]
        return {name.strip().lower(): float(position) for name, _, position in pairs}
    except ValueError:
        message = f"--aging-positions {text}: must be names and positions in the year, as Estiu:0.5"
        raise typer.BadParameter(message) from None
