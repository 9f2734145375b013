"""Which generation of a flow's tables is current, and which is about to be.

Lake and database change over together, though no one transaction spans them: the pointer first says
what is about to happen, then the database does it, then the pointer says that it is done. Whoever
finds a change begun finishes it (`replay.finish`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.pipeline.lake.log import write_whole


@dataclass(frozen=True, slots=True)
class Generations:
    current: int = 0
    next: int | None = None  #: being adopted
    newest: int = 0  #: the last number given out


class Pointer:
    __slots__ = ("_path",)

    def __init__(self, root: Path, flow: str) -> None:
        self._path = root / "generations" / f"{flow}.json"

    def read(self) -> Generations:
        try:
            return Generations(**json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return Generations()

    def write(self, generations: Generations) -> None:
        write_whole(self._path, json.dumps(asdict(generations)))
