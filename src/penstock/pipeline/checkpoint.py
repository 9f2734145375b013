"""Where a flow's query goes on: Spark's checkpoint, or, without one, bronze.

Spark numbers batches from 0 in every checkpoint. A flow's batches have one numbering for good, so
a checkpoint remembers, beside Spark's files, which of the flow's numbers its first batch has. A new
one over a lake that holds messages already begins behind them, in number and in offsets: losing a
checkpoint loses nothing and doubles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.pipeline import bronze
from penstock.pipeline.lake import Lake
from penstock.pipeline.lake.log import write_whole

log = get_logger(__name__)

_OURS: Final = "penstock.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's folder, and what it was begun with."""

    folder: Path
    first: int = 0  #: the flow's number of Spark's batch 0
    #: Where streams were to begin, as far as bronze knows them.
    starting: Mapping[str, int] = field(default_factory=dict)

    def number(self, spark_batch: int) -> int:
        return self.first + spark_batch

    def committed(self, batch: int) -> bool:
        """Whether Spark knows that the batch is done."""
        return (self.folder / "commits" / str(batch - self.first)).exists()


def open_checkpoint(folder: Path, lake: Lake) -> Checkpoint:
    """The checkpoint there, or a new one that begins where bronze ends."""
    try:
        found = json.loads((folder / _OURS).read_bytes())
        return Checkpoint(folder, found["first"], found["starting"])
    except FileNotFoundError:
        pass
    if (folder / "metadata").exists():
        raise ConfigurationError(
            f"{folder} is the checkpoint of another query: choose another data directory, or move "
            "it away to go on where bronze ends"
        )
    kept = bronze.last(lake)
    new = Checkpoint(folder) if kept is None else Checkpoint(folder, kept.batch + 1, kept.ends)
    if kept is not None:
        log.warning("no checkpoint: going on where bronze ends", batch=new.first, ends=new.starting)
    content = asdict(new)
    del content["folder"]
    write_whole(folder / _OURS, json.dumps(content))
    return new
