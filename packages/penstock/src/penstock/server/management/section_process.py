"""The process that answers calls of console sections: `python -m …section_process CONTEXT`.

Sections belong to installed packages, which may need much memory and block; so they do not run in
the broker. `penstock.core.console_section` describes them. Each call runs in a thread.

Requests and responses are lines of JSON on standard input and output. Without a request for some
time the process ends; the next call starts it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from penstock.core.console_section import ConsoleCall, ConsoleContext
from penstock.core.errors import NotFound, PenstockError
from penstock.core.list_page import page_of

GROUP: Final = "penstock.console"
_THREADS: Final = 4


def _open(name: str, context: ConsoleContext) -> Mapping[str, ConsoleCall]:
    from importlib.metadata import entry_points  # the broker imports this module for `GROUP`

    for entry in entry_points(group=GROUP):
        if entry.name == name:
            found: Mapping[str, ConsoleCall] = entry.load()(context)
            return found
    raise NotFound(f"no section '{name}'")


class _Sections:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._calls: dict[str, Mapping[str, ConsoleCall]] = {}
        self._opening = threading.Lock()
        self._writing = threading.Lock()

    def answer(self, line: str, out: Any) -> None:
        request = json.loads(line)
        try:
            with self._opening:
                section = request["section"]
                if section not in self._calls:
                    self._calls[section] = _open(section, self._context)
            call = self._calls[section].get(request["call"])
            if call is None:
                raise NotFound(f"section '{section}' has no call '{request['call']}'")
            arguments = request["arguments"]
            found = call(arguments)
            paged = isinstance(found, list) and "page" in arguments
            response = {"result": page_of(found, arguments) if paged else found}
        except NotFound as error:
            response = {"status": 404, "reason": str(error)}
        except PenstockError as error:
            response = {"status": 400, "reason": str(error)}
        except Exception as error:
            response = {"status": 503, "reason": f"{type(error).__name__}: {error}"}
        text = json.dumps({"id": request["id"], **response}, default=str)
        with self._writing:
            out.write(text + "\n")
            out.flush()


def read_context(fields: Mapping[str, str], environment: Mapping[str, str]) -> ConsoleContext:
    """URLs with passwords are in the environment, which command lines do not show."""
    given = environment.get("PENSTOCK_URL", "")
    return ConsoleContext(
        Path(fields["data"]),
        given if given.startswith(("amqp://", "amqps://")) else fields["broker"],
        fields["management"],
        environment.get("PENSTOCK_DATABASE"),
    )


def main() -> None:
    sections = _Sections(read_context(json.loads(sys.argv[1]), os.environ))
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr), ThreadPoolExecutor(_THREADS) as pool:
        for line in sys.stdin:
            pool.submit(sections.answer, line, out)


if __name__ == "__main__":
    main()
