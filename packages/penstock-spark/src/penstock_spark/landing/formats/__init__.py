"""The formats of message bodies: JSON, CSV, Avro, Protobuf, text and bytes."""
