"""`penstock backup` and `penstock restore`: a running broker, in a directory or a bucket."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, ManagementUrl, Overrides, effective
from penstock.client.management import connect_management_api, management_url

_LOCATION: Final = "DIR|s3://BUCKET/PREFIX"
#: A broker with very many queues takes a while.
SNAPSHOT_SECONDS: Final = 120.0


def backup(
    to: Annotated[
        str, typer.Option("--to", metavar=_LOCATION, help="Where backups of this broker are.")
    ],
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="N", min=1, help="Then remove all backups but the newest N."
        ),
    ] = None,
    url: ManagementUrl = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Back up a running broker: everything in the first backup, what is new in later ones."""
    from penstock.client.backup import BackupRepository
    from penstock.core.object_store import open_object_store

    address = management_url(effective(file, pairs).settings.broker, url)
    store = open_object_store(to)
    with connect_management_api(address, SNAPSHOT_SECONDS) as client:
        done = BackupRepository(store).take(client, keep)
    snapshot = done.snapshot
    typer.echo(
        f"backup of {snapshot.time.isoformat(timespec='seconds')}: {len(snapshot.files)} files, "
        f"{snapshot.size:,} bytes, of which {done.new_bytes:,} are new"
    )
    if keep is not None:
        typer.echo(f"removed {done.removed} older backups, {done.removed_bytes:,} bytes")


def restore(
    source: Annotated[
        str, typer.Option("--from", metavar=_LOCATION, help="Where the backups are.")
    ],
    data: Data = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="The last backup until this time. [default: the newest]"
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Only print the times.")] = False,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Restore a backup into an empty data directory; then start a broker with it."""
    from penstock.client.backup import BackupRepository, parse_time
    from penstock.core.object_store import open_object_store

    repository = BackupRepository(open_object_store(source))
    if listed:
        for time in repository.times():
            typer.echo(time.isoformat())
        return
    snapshot = repository.find(parse_time(at) if at else None)
    target = effective(file, pairs, data).settings.data
    repository.restore(snapshot, target)
    typer.echo(
        f"{target} has the broker of {snapshot.time.isoformat(timespec='seconds')}; start it: "
        f"penstock broker --data {target}"
    )
