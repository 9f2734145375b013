"""What a fleet that is simulated for days remembers between two runs: when it began, what it told.

A fleet is a function of its seed and its start, so these make it the same again, and its counters
go on where they were; frames up to `told` are at the broker already. Replaced whole, so that a run
that was killed leaves the entry before.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    seed: int
    hives: int
    start: int  #: Unix ms, when the fleet began
    told: int  #: Unix ms, of the last frame that is safe


@dataclass(frozen=True, slots=True)
class Diary:
    path: Path

    def read(self) -> Entry | None:
        """The last entry; none as well if it cannot be made out."""
        try:
            return Entry(**json.loads(self.path.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, entry: Entry) -> None:
        aside = self.path.with_suffix(".new")
        aside.write_text(json.dumps(asdict(entry)))
        aside.replace(self.path)
