"""The segmented log, the storage of all durable data.

A stream is a `Log` with many readers. A durable queue is a `Log` and an `AckFile`. One `Committer`
per broker writes and syncs them. `arrow` reads ranges as Arrow; it needs pyarrow and is imported on
demand.
"""

from penstock.broker.log.ack_file import AckFile
from penstock.broker.log.chunk import SPOOLED, Chunk
from penstock.broker.log.committer import Committer, Writable
from penstock.broker.log.log import Log

__all__ = ["SPOOLED", "AckFile", "Chunk", "Committer", "Log", "Writable"]
