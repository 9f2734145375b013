"""Many messages as one value: a record batch in the bytes of Arrow's IPC.

    reader.schema("packed BINARY").load()

For queries whose own workers want Arrow: Spark then hands bytes from one Python process to the
next, and looks at no message. Exactly once is as it was, for it is a matter of offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

PACKED: Final = "packed"


def pack(messages: pa.RecordBatch) -> pa.RecordBatch:
    """One row, which is the batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, messages.schema) as writer:
        writer.write_batch(messages)
    content = sink.getvalue()
    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])
    return pa.RecordBatch.from_arrays([value], [PACKED])


def unpack(value: pa.BinaryScalar) -> Iterator[pa.RecordBatch]:
    """The batch again; it points into the value."""
    with pa.ipc.open_stream(value.as_buffer()) as batches:
        yield from batches
