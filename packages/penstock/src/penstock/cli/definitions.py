"""`penstock definitions`: exports and imports definitions in RabbitMQ's format.

Users, permissions, virtual hosts, exchanges, queues, bindings and policies; no messages. A file of
one broker can be imported into the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from penstock.cli.options import ConfigFile, ManagementUrl, effective
from penstock.client.management import call_management_api, management_url
from penstock.core.errors import NotFound, PreconditionFailed

_STANDARD = Path("-")

app = typer.Typer(
    no_args_is_help=True, help="Export and import users, queues, exchanges, bindings and policies."
)


@app.command()
def export(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="- for standard output.")
    ] = _STANDARD,
    url: ManagementUrl = None,
    file: ConfigFile = None,
) -> None:
    """Write a running broker's definitions to a file."""
    definitions = call_management_api(_address(file, url), "/api/definitions")
    text = json.dumps(definitions, indent=2)
    if target == _STANDARD:
        typer.echo(text)
    else:
        target.write_text(text + "\n", encoding="utf-8")


@app.command("import")
def restore(
    origin: Annotated[Path, typer.Argument(metavar="FILE", help="- for standard input.")],
    url: ManagementUrl = None,
    file: ConfigFile = None,
) -> None:
    """Add definitions from a file to a running broker."""
    try:
        text = typer.get_text_stream("stdin").read() if origin == _STANDARD else origin.read_text()
        definitions = json.loads(text)
    except OSError as error:
        raise NotFound(f"{origin}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PreconditionFailed(f"{origin}: is not JSON: {error}") from error
    call_management_api(_address(file, url), "/api/definitions", definitions)


@app.command()
def asyncapi(
    vhost: Annotated[str, typer.Option("--vhost", metavar="VHOST", help="Virtual host.")] = "/",
    url: ManagementUrl = None,
    file: ConfigFile = None,
) -> None:
    """Print the queues, streams and bound routing keys of a virtual host as AsyncAPI 3."""
    path = f"/api/asyncapi/{quote(vhost, safe='')}"
    typer.echo(json.dumps(call_management_api(_address(file, url), path), indent=2))


@app.command()
def openapi() -> None:
    """Print the description of the management API as OpenAPI 3."""
    from penstock.server.management.api_description import openapi_document
    from penstock.server.management.server import ROUTES

    typer.echo(json.dumps(openapi_document(ROUTES), indent=2))


def _address(file: Path | None, url: str | None) -> str:
    return management_url(effective(file).settings.broker, url)
