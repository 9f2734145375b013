"""Where a flow keeps what: folders below the data directory, by the flow's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.pipeline.claims import Claims
from penstock.pipeline.lake import Lake, Pointer

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,19}")


@dataclass(frozen=True, slots=True)
class Place:
    """One flow's files. Driver and workers see the same ones."""

    data: Path
    flow: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.flow):
            raise ConfigurationError(
                f"{self.flow!r} is no name of a flow: up to 20 of a-z, 0-9, - and _"
            )

    @property
    def lake(self) -> Lake:
        """The generation that is current now."""
        return Lake.open(self.data / "lake", self.flow)

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.data / "lake", self.flow)

    @property
    def checkpoint(self) -> Path:
        return self.data / "checkpoints" / self.flow

    @property
    def progress(self) -> Path:
        return self.data / "progress"

    @property
    def claims(self) -> Claims:
        return Claims(self.data / "progress", self.flow)
