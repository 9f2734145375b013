"""Messages that are gone before they were read: fail, or say so and go on.

A gap is never passed over in silence. With `failOnDataLoss` (the default) it ends the query with
an error that says what happened and what can be done; without, it is logged with how many messages
have been missed so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.logs import get_logger
from penstock.pipeline.errors import DataLost

_log = get_logger(__name__)

_TO_DO = (
    "To go on with what is left, set failOnDataLoss=false; to keep messages longer, raise the "
    "stream's x-max-age or x-max-length-bytes"
)


@dataclass(slots=True)
class LossPolicy:
    fail: bool
    missed: int = 0  #: messages, as far as they can be counted

    def gap(self, stream: str, expected: int, found: int) -> None:
        """The next message after `expected` that is there is `found`."""
        count = found - expected
        self._lost(
            f"stream {stream!r}: the {count} messages from offset {expected} to {found - 1} are no "
            f"longer there: retention has removed them before they were read. {_TO_DO}",
            stream,
            count,
        )

    def ended(self, stream: str, expected: int, end: int) -> None:
        """The stream ends before an offset it has had already."""
        self._lost(
            f"stream {stream!r} ends at offset {end}, and has been read up to {expected}: it was "
            "deleted and declared anew, or its broker lost data. To read the new stream from its "
            "beginning, set failOnDataLoss=false, or begin with a new checkpoint",
            stream,
            max(expected - end, 0),
        )

    def short(self, stream: str, position: int, stop: int) -> None:
        """Messages that the stream was seen to have are not in it."""
        self._lost(
            f"stream {stream!r} has no messages from offset {position} to {stop - 1}, which it had "
            "when the batch was planned: retention has removed them, or it was deleted and "
            f"declared anew. {_TO_DO}",
            stream,
            stop - position,
        )

    def missing(self, stream: str, position: int) -> None:
        self._lost(
            f"stream {stream!r} is no longer there; it has been read up to offset {position}. If "
            "it was deleted on purpose, set failOnDataLoss=false or take it out of the streams",
            stream,
            0,
        )

    def _lost(self, words: str, stream: str, count: int) -> None:
        if self.fail:
            raise DataLost(words)
        self.missed += count
        _log.warning("messages lost", stream=stream, count=count, total=self.missed, reason=words)
