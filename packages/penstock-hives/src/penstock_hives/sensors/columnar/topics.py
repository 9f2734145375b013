"""Which sensor and which kind of message, by the column of routing keys or topics."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.sensors.protocol.frame import MalformedFrame, RejectReason
from penstock_hives.sensors.protocol.topic import SensorTopic

TOPIC_SCHEMA: Final = pa.schema(
    [("reason", pa.string()), ("serial", pa.string()), ("kind", pa.string())]
)

_Found = tuple[str | None, str | None, str | None]


def parse_topics(names: pa.Array | pa.ChunkedArray) -> pa.RecordBatch:
    """A row for each name. There are many messages and few names: each is read once."""
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    if not pa.types.is_dictionary(names.type):
        names = pc.dictionary_encode(names, null_encoding="encode")
    found = [_parse(name) for name in names.dictionary.to_pylist()]
    found.append((RejectReason.UNKNOWN_TOPIC.value, None, None))
    rows = pc.fill_null(names.indices.cast(pa.int64()), len(found) - 1)
    columns = [pa.array(each, pa.string()).take(rows) for each in zip(*found, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=TOPIC_SCHEMA)


def _parse(name: str | None) -> _Found:
    try:
        topic = SensorTopic.parse(name or "")
    except MalformedFrame as error:
        return error.reason.value, None, None
    return None, topic.serial, topic.kind.value
