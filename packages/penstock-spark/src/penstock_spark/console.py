"""The section *Pipeline* of the console: flows, batches, lag, tables, dead letters and replay."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any, Final

from penstock.core.console_section import ConsoleCall, ConsoleContext
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.list_page import page_frame, page_numbers, page_of
from penstock_spark.commands.pipeline import dead_letter_record, newest_dead_letters
from penstock_spark.directory import FlowDirectory
from penstock_spark.status import dead_letter_count, flow_status

_FLOW: Final = re.compile(r"[A-Za-z0-9_-]+")
_LAST_BYTES: Final = 4000


def calls(context: ConsoleContext) -> Mapping[str, ConsoleCall]:
    section = PipelineSection(context)
    return {
        "status": section.status,
        "tables": section.tables,
        "dead-letters": section.dead_letters,
        "replays": section.replays,
        "do-replay": section.replay,
    }


class PipelineSection:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._replays: dict[str, tuple[subprocess.Popen[bytes], float]] = {}

    def _flows(self) -> list[str]:
        found = (self._context.data / "progress").glob("*.state.json")
        return sorted(path.name.split(".")[0] for path in found)

    def _directory(self, arguments: dict[str, Any]) -> FlowDirectory:
        flow = str(arguments.get("flow", ""))
        if flow not in self._flows() or not _FLOW.fullmatch(flow):
            raise NotFound(f"no flow '{flow}'")
        return FlowDirectory(self._context.data, flow)

    def status(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        now = time.time()
        return [
            asdict(flow_status(FlowDirectory(self._context.data, name), self._context.broker, now))
            for name in self._flows()
        ]

    def tables(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"flow": flow, "name": table.name, **asdict(table.size())}
            for flow in self._flows()
            for table in FlowDirectory(self._context.data, flow).lake.tables()
        ]

    def dead_letters(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A page, the newest first. Without a text, older files than the page's are not read."""
        directory = self._directory(arguments)
        found = map(dead_letter_record, newest_dead_letters(directory, None))
        if arguments.get("name"):
            return page_of(found, arguments)
        page, size = page_numbers(arguments)
        total = dead_letter_count(directory)
        frame = page_frame(page, size, total, total)
        first = (frame["page"] - 1) * size
        items = list(islice(found, first, first + size))
        return {**frame, "item_count": len(items), "items": items}

    def replay(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Start `penstock pipeline replay`, which runs Spark; its output is in a file."""
        flow = self._directory(arguments).flow
        running = self._replays.get(flow)
        if running is not None and running[0].poll() is None:
            raise PreconditionFailed(f"a replay of {flow} is running")
        context = self._context
        command = [sys.executable, "-m", "penstock", "pipeline", "replay", "--flow", flow]
        command += ["--data", str(context.data), "--url", context.broker]
        if arguments.get("from"):
            command += ["--from", str(arguments["from"])]
        if context.database:
            command += ["--database", context.database]
        with self._log(flow).open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._replays[flow] = (process, time.time())
        return {"flow": flow, "pid": process.pid}

    def replays(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """The last replay of each flow, with the end of its output."""
        found = []
        for flow in self._flows():
            log = self._log(flow)
            if not log.exists():
                continue
            process, started = self._replays.get(flow, (None, log.stat().st_mtime))
            state = None if process is None else process.poll()
            running = process is not None and state is None
            output = log.read_bytes()[-_LAST_BYTES:].decode(errors="replace")
            found.append(
                {
                    "flow": flow,
                    "started": started,
                    "running": running,
                    "exit_status": state,
                    "output": output,
                }
            )
        return found

    def _log(self, flow: str) -> Any:
        return self._context.data / "progress" / f"{flow}.replay.log"
