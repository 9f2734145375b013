"""The file of a long run: a JSON line for each round, so that a run can be continued."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.paths import ROOT


class Records:
    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.all: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._commit = _commit()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what the run has started

    def total(self, field: str, **equal: object) -> int:
        """The sum of a field over the lines whose other fields are equal to these."""
        return sum(
            record[field]
            for record in self.all
            if all(record[key] == value for key, value in equal.items())
        )

    def add(self, **record: Any) -> None:
        """Append and print a line, with the time and the commit."""
        record |= {"at": datetime.now(UTC).isoformat(timespec="seconds"), "commit": self._commit}
        self.all.append(record)
        line = json.dumps(record)
        with self._path.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
