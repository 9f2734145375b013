"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

LiveBrokers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="A broker that publishes occupancy; may be repeated, the next is used on failure.",
    ),
]
Hives = Annotated[int, typer.Option(min=1, metavar="N", help="Number of hives.")]
Seed = Annotated[
    int, typer.Option(min=0, metavar="N", help="Seed of all random choices of the simulation.")
]
