"""The section *Pump* of the console: components with rates, retries and failures; the history of a
file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.client.management import ManagementClient
from penstock.core.console_section import ConsoleCall, ConsoleContext
from penstock.core.errors import ConfigurationError, NotFound
from penstock.core.units import parse_count
from penstock_pump.commands.configurations import config_home
from penstock_pump.commands.fleet import FleetMember, members
from penstock_pump.commands.pump import DEMO_FOLDER
from penstock_pump.demo import CONFIG_FOLDER
from penstock_pump.status import read_status


def calls(context: ConsoleContext) -> Mapping[str, ConsoleCall]:
    section = PumpSection(context)
    return {"components": section.components, "trace": section.trace}


class PumpSection:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    def components(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """The configurations of the home, and of the demonstration of `penstock up`."""
        demo = self._context.data / DEMO_FOLDER / CONFIG_FOLDER
        found: list[dict[str, Any]] = []
        for folder in (config_home(), demo):
            if any(folder.glob("*/*.*")):
                try:
                    found += map(_describe, members([str(folder)]))
                except ConfigurationError as error:
                    found.append({"name": str(folder), "state": "invalid", "reason": str(error)})
        return found

    def trace(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        name = str(arguments.get("file", ""))
        days = parse_count(str(arguments.get("days", 7))) or 7
        if not name:
            raise NotFound("name a file, the end of a path, or a pattern")
        from penstock_pump.lake.trace import has_archive, trace, trace_stream

        context, today = self._context, datetime.now(UTC).date()
        if has_archive(context.data):
            hops = trace(context.data, name, (today - timedelta(days=days), today))
        else:
            parts = urlsplit(context.broker)
            user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
            client = ManagementClient(context.management, user, password)
            hops = trace_stream(client, name, days)
        return [{**asdict(hop), "at": hop.at.isoformat()} for hop in hops]


def _describe(member: FleetMember) -> dict[str, Any]:
    status = member.current_status()
    if status is None:
        died = read_status(member.settings) is not None
        return {"name": member.name, "state": "died" if died else "stopped"}
    return {"name": member.name, "state": "running", **asdict(status)}
