"""History's part of `penstock up`: the historian, if the broker has a PADRES listener."""

from __future__ import annotations

from typing import Final

from penstock.cli.up.extension import BROKER, DATABASE, Extension, UpOptions, flags
from penstock.cli.up.supervisor import Addresses, Part

HISTORY: Final = "history"


def extend(options: UpOptions) -> Extension:
    def historian(found: Addresses) -> list[str]:
        database = options.database_url(found)
        return [
            *options.command("historian"),
            *flags("--stream-url", options.listener("amqp", found)),
            *flags("--database", [database] if database else ()),
            *flags("--url", options.listener("padres", found)),
        ]

    if not (options.pipeline and options.applications and options.overlay):
        return Extension()
    return Extension([Part(HISTORY, historian, [BROKER, DATABASE])])
