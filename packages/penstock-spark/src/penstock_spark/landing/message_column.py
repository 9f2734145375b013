"""Columns that come from the message itself: its stream, offset and time, headers, routing key.

`_stream`, `_offset` and `_timestamp` are in every table. `--column NAME=SOURCE` adds others:

    header:NAME     a header; what is not text is JSON text
    key             the routing key; key:2 is its second word, between dots
    topic           the MQTT topic; topic:2 is its second level
    exchange, content_type, message_id
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import ConfigurationError
from penstock.wire.mqtt.topics import routing_key_to_topic
from penstock_spark.landing.types import TIMESTAMP, column_name

STREAM: Final = "_stream"
OFFSET: Final = "_offset"
TIME: Final = "_timestamp"
DAY: Final = "_day"

MESSAGE_FIELDS: Final = (
    pa.field(STREAM, pa.string()),
    pa.field(OFFSET, pa.int64()),
    pa.field(TIME, TIMESTAMP),
)
DAY_FIELD: Final = pa.field(DAY, pa.date32())
RESERVED_NAMES: Final = frozenset({STREAM, OFFSET, TIME, DAY})

_PROPERTIES: Final = ("exchange", "content_type", "message_id")
_PARTS: Final = ("key", "topic")


@dataclass(frozen=True, slots=True)
class MessageColumn:
    name: str
    source: str  #: header, key, topic or a property
    detail: str = ""  #: the name of a header, or the number of a word

    @classmethod
    def parse(cls, name: str, text: str) -> MessageColumn:
        source, colon, detail = text.partition(":")
        if name.lower() in RESERVED_NAMES or column_name(name) != name:
            why = "the name is reserved" if name.lower() in RESERVED_NAMES else "not a column name"
            raise ConfigurationError(f"column {name!r}: {why}")
        if source == "header" and detail:
            return cls(name, source, detail)
        if source in _PARTS and (not colon or (detail.isdecimal() and int(detail) > 0)):
            return cls(name, source, detail)
        if source in _PROPERTIES and not colon:
            return cls(name, source)
        raise ConfigurationError(
            f"column {name}={text}: should be header:NAME, key, key:N, topic, topic:N, "
            f"{' or '.join(_PROPERTIES)}"
        )

    def build(self, messages: pa.RecordBatch) -> pa.Array:
        match self.source:
            case "header":
                return pc.map_lookup(messages["headers"], self.detail, "first")
            case "key":
                return self._part(messages["routing_key"], ".")
            case "topic":
                keys = messages["routing_key"].dictionary_encode()
                topics = [
                    None if key is None else routing_key_to_topic(key.encode()).decode()
                    for key in keys.dictionary.to_pylist()
                ]
                return self._part(pa.array(topics, pa.string()).take(keys.indices), "/")
        return messages[self.source]

    def _part(self, texts: pa.Array, separator: str) -> pa.Array:
        if not self.detail:
            return texts
        index = int(self.detail) - 1
        found = texts.dictionary_encode()
        words = [
            None if text is None else (text.split(separator)[index : index + 1] or [None])[0]
            for text in found.dictionary.to_pylist()
        ]
        return pa.array(words, pa.string()).take(found.indices)
