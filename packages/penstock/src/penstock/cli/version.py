"""`penstock version`."""

from __future__ import annotations

import platform

import typer

from penstock import __version__


def version() -> None:
    """Print the version."""
    typer.echo(f"penstock {__version__} on Python {platform.python_version()}")
