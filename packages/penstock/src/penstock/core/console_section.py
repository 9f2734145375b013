"""What a section of the web console gets from the broker that serves it.

A package registers a function with the entry point group `penstock.console`. It takes a
`ConsoleContext` and returns the calls of the section by name; each takes an object and returns one.
Names of calls that change something begin with `do-`. The page is `static/NAME-section.js` in the
package.

    [project.entry-points."penstock.console"]
    jobs = "penstock_jobs.console:calls"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ConsoleCall = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    data: Path  #: the broker's data directory
    broker: str  #: an AMQP URL, with the user of `PENSTOCK_URL`; empty without such a listener
    management: str  #: its HTTP URL
    database: str | None = None  #: None for the embedded one
