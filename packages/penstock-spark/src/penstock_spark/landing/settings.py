"""What to land where: the options of `penstock lake land`, or the tables of a TOML file.

url = "amqp://localhost"
lake = "s3://lake"

[tables.orders]
stream = "orders"
format = "json"
partition = "day"
columns = { tenant = "header:tenant" }
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pyarrow as pa

from penstock.core.errors import ConfigurationError
from penstock.core.settings_model import (
    Before,
    Field,
    SettingsError,
    build_settings,
    settings_model,
)
from penstock_spark.lake.storage import StorageLocation
from penstock_spark.landing.formats.avro import AvroFormat
from penstock_spark.landing.formats.body_format import BodyFormat, BytesFormat, TextFormat
from penstock_spark.landing.formats.csv import CsvFormat
from penstock_spark.landing.formats.json import JsonFormat
from penstock_spark.landing.formats.protobuf import ProtobufFormat
from penstock_spark.landing.message_column import DAY, MessageColumn
from penstock_spark.landing.types import parse_schema

_Settings = TypeVar("_Settings")


def _words(value: Any) -> Any:
    """A list of names, or one text with commas."""
    return [each for each in value.split(",") if each] if isinstance(value, str) else value


_Names = Annotated[list[str], Before(_words)]


@settings_model
class LandingSettings:
    """One table, and the streams that fill it."""

    to: str
    stream: _Names = Field(default_factory=list)
    mqtt: str | None = None
    format: Literal["json", "csv", "avro", "protobuf", "text", "bytes"] = "json"
    schema: str | None = None  #: text, or the path of a file
    message: str = ""
    csv_header: bool = False
    csv_delimiter: str = ","
    columns: dict[str, str] = Field(default_factory=dict)
    partition: _Names = Field(default_factory=list)
    new_columns: Literal["add", "ignore", "reject"] = "add"
    sample: int = Field(default=1000, ge=1, le=1_000_000)
    start: str = "earliest"
    dead_letters: str | None = None
    storage: dict[str, str] = Field(default_factory=dict, repr=False)

    def check(self) -> None:
        if not self.streams:
            raise ValueError("stream is missing: name one, or give an MQTT topic filter with mqtt")
        if self.mqtt is not None and len(self.streams) > 1:
            raise ValueError("mqtt: a topic filter has one stream")
        if self.message and self.format != "protobuf":
            raise ValueError(f"message is for format protobuf, not {self.format}")
        if (self.csv_header or self.csv_delimiter != ",") and self.format != "csv":
            raise ValueError(f"csv_header and csv_delimiter are for format csv, not {self.format}")

    @property
    def streams(self) -> tuple[str, ...]:
        """As given; of an MQTT topic filter without a name, the name of the stream is its own."""
        named = tuple(dict.fromkeys(each.strip() for each in self.stream if each.strip()))
        return named or ((f"mqtt/{self.mqtt}",) if self.mqtt is not None else ())

    @property
    def location(self) -> StorageLocation:
        return StorageLocation.parse(self.to, self.storage)

    @property
    def dead_letter_location(self) -> StorageLocation:
        name = self.dead_letters or f"{self.to.rstrip('/')}_dead_letters"
        return StorageLocation.parse(name, self.storage)

    @property
    def message_columns(self) -> tuple[MessageColumn, ...]:
        return tuple(MessageColumn.parse(name, text) for name, text in self.columns.items())

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns; `day` is the day of arrival."""
        names = [each.strip() for each in self.partition if each.strip()]
        return tuple(DAY if each == "day" else each for each in names)

    def open_format(self) -> BodyFormat:
        """Read the schema's file and check the options; raises `ConfigurationError`."""
        match self.format:
            case "json":
                return JsonFormat(self._table_schema())
            case "csv":
                return CsvFormat(self._table_schema(), self.csv_header, self.csv_delimiter)
            case "avro":
                return AvroFormat(self._text("the schema of records, an .avsc file"))
            case "protobuf":
                return ProtobufFormat(self._file("a descriptor set").read_bytes(), self.message)
            case form:
                if self.schema is not None:
                    raise ConfigurationError(f"format {form} has no schema")
                return TextFormat() if form == "text" else BytesFormat()

    def _table_schema(self) -> pa.Schema | None:
        if self.schema is None:
            return None
        return parse_schema(self._text("a schema"), "schema")

    def _text(self, what: str) -> str:
        if self.schema is not None and self.schema.lstrip()[:1] in ("{", "["):
            return self.schema
        if self.schema is not None and _is_schema_text(self.schema):
            return self.schema
        return self._file(what).read_text()

    def _file(self, what: str) -> Path:
        if self.schema is None:
            raise ConfigurationError(f"format {self.format} needs --schema FILE: {what}")
        path = Path(self.schema).expanduser()
        if not path.is_file():
            raise ConfigurationError(f"schema {self.schema!r}: no such file; expected {what}")
        return path


def _is_schema_text(text: str) -> bool:
    """Whether it is `name TYPE`, rather than a path."""
    return " " in text.strip() and not Path(text).is_file()


@settings_model
class LandingConfiguration:
    """A TOML file."""

    tables: dict[str, dict[str, Any]]
    url: str | None = None
    lake: str | None = None
    storage: dict[str, str] = Field(default_factory=dict, repr=False)


def load_configuration(path: Path) -> tuple[str | None, list[LandingSettings]]:
    """The broker's URL, if the file has one, and the tables."""
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if not values.get("tables"):
        raise ConfigurationError(f"{path}: no tables; add a section [tables.NAME] for each")
    given = _built(LandingConfiguration, values, str(path))
    tables = []
    for name, options in given.tables.items():
        if "to" not in options and given.lake is None:
            raise ConfigurationError(f"{path}: tables.{name}: to is missing, and so is lake")
        defaults = {"to": f"{(given.lake or '').rstrip('/')}/{name}", "storage": given.storage}
        tables.append(landing_settings(defaults | options, f"{path}: tables.{name}"))
    return given.url, tables


def landing_settings(options: dict[str, Any], source: str) -> LandingSettings:
    return _built(LandingSettings, options, source)


def _built(model: type[_Settings], values: dict[str, Any], source: str) -> _Settings:
    try:
        return build_settings(model, values)
    except SettingsError as error:
        found = error.problems[0]
        where = ".".join(found.location)
        raise ConfigurationError(f"{source}: {where}{': ' if where else ''}{found.text}") from None
