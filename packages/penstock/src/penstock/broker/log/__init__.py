"""The segmented log: what is durable is kept here.

A stream is a `Log` that many readers replay. A durable queue is a `Log` and an `AckFile`. One
`Committer` for a broker writes and syncs them all. Ranges as Arrow are in `arrow`, imported only
by who needs it.
"""

from penstock.broker.log.ack_file import AckFile
from penstock.broker.log.chunk import SPOOLED, Chunk
from penstock.broker.log.committer import Committer, Writable
from penstock.broker.log.log import Log

__all__ = ["SPOOLED", "AckFile", "Chunk", "Committer", "Log", "Writable"]
