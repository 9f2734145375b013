"""Model files: a zip of plain data, without code.

Classifiers are not stored; they are fitted again when the file is read, which takes a moment. Files
are untrusted: the size of what they decompress and decode to is checked first.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from penstock.core.units import MiB
from penstock_jobs import archive
from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats.json import check_json
from penstock_jobs.science.calibration import INPUTS, SourceCalibration
from penstock_jobs.science.classifiers import CONFIGURATIONS
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import FEATURES, INDICATORS, SAMPLE, SEASON, Season
from penstock_jobs.science.matrix import SampleMatrix
from penstock_jobs.science.model import ModelCell, Signature, SourceModel
from penstock_jobs.science.simulation import SECTIONS

MODEL_SCHEMA: Final = 1
#: Unpacked. A thousand samples and fourteen cells of 750 signatures have 3 MiB.
MAX_MODEL_BYTES: Final = 16 * MiB
#: Values in a JSON file.
_MAX_VALUES: Final = 500_000
#: Length of a sample's id.
_MAX_TEXT: Final = 255
_CALIBRATION: Final = "calibration.json"
_NAMES: Final = {configuration.name: configuration for configuration in CONFIGURATIONS}


def save_model(model: SourceModel) -> bytes:
    matrix = _saved_matrix(model.matrix)
    manifest = {
        "schema": MODEL_SCHEMA,
        "seed": model.seed,
        "indicators": INDICATORS,
        "features": FEATURES,
        "sections": SECTIONS,
        "matrix": hashlib.sha256(model.matrix.values.tobytes()).hexdigest(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scikit-learn": version("scikit-learn"),
    }
    bags = [
        {
            "season": cell.season.name.lower(),
            "section": cell.section,
            "signatures": [
                [each.configuration.name, [FEATURES[at] for at in each.features], each.score]
                for each in bag
            ],
        }
        for cell, bag in model.bags.items()
    ]
    slopes = {
        season.name.lower(): {
            name: None if np.isnan(slope) else slope
            for name, slope in zip(INDICATORS, model.coefficients.of(season).tolist(), strict=True)
        }
        for season in Season
    }
    files = {
        "manifest.json": _json(manifest),
        "coefficients.json": _json(slopes),
        "signatures.json": _json(bags),
        "matrix.parquet": matrix,
    }
    if model.calibration is not None:
        files[_CALIBRATION] = _json(asdict(model.calibration))
    return archive.pack(files)


def load_model(data: bytes) -> SourceModel:
    files = archive.contents(data, most_bytes=MAX_MODEL_BYTES)
    try:
        manifest = _read_json(files["manifest.json"])
        if manifest["schema"] != MODEL_SCHEMA:
            raise JobFormatError(
                f"the model has version {manifest['schema']}; only {MODEL_SCHEMA} is supported"
            )
        slopes = _read_json(files["coefficients.json"])
        bags = _read_json(files["signatures.json"])
        model = SourceModel(
            _loaded_matrix(files["matrix.parquet"]),
            DecayCoefficients(_loaded_slopes(slopes)),
            {_cell(bag): tuple(_signature(*each) for each in bag["signatures"]) for bag in bags},
            int(manifest["seed"]),
            _loaded_calibration(files.get(_CALIBRATION)),
        )
    except KeyError as error:
        raise JobFormatError(f"not a model: {error.args[0]!r} is missing") from error
    except (ValueError, TypeError, IndexError, OSError, RecursionError, pa.ArrowException) as error:
        raise JobFormatError(f"not a model: {error}") from error
    if hashlib.sha256(model.matrix.values.tobytes()).hexdigest() != manifest["matrix"]:
        raise JobFormatError("the model is damaged: the matrix has changed")
    return model


def _loaded_calibration(data: bytes | None) -> SourceCalibration | None:
    """Models of older versions have none."""
    if data is None:
        return None
    check_json(data, _MAX_VALUES)
    calibration = TypeAdapter(SourceCalibration).validate_json(data)
    numbers = [*calibration.weights, calibration.threshold]
    if len(calibration.weights) != INPUTS or not np.isfinite(numbers).all():
        raise JobFormatError(f"not a model: {_CALIBRATION} has other inputs")
    return calibration


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode()


def _read_json(data: bytes) -> Any:
    check_json(data, _MAX_VALUES)
    return json.loads(data)


def _saved_matrix(matrix: SampleMatrix) -> bytes:
    columns: dict[str, Any] = {
        SAMPLE: list(matrix.samples),
        SEASON: [season.name.lower() for season in matrix.seasons],
    }
    columns |= {name: matrix.values[:, at] for at, name in enumerate(INDICATORS)}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def _loaded_matrix(data: bytes) -> SampleMatrix:
    table = read_table(data, (SAMPLE, SEASON))
    values = np.column_stack([table[name].to_numpy() for name in INDICATORS]).astype(np.float64)
    seasons = tuple(Season[name.upper()] for name in _texts(table[SEASON]))
    return SampleMatrix(tuple(_texts(table[SAMPLE])), values, seasons)


def _texts(column: pa.ChunkedArray) -> list[str]:
    found: list[str] = []
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        if any(len(word) > _MAX_TEXT for word in words):
            raise JobFormatError(f"not a model: a name is longer than {_MAX_TEXT} characters")
        found += [words[at] for at in chunk.indices.to_pylist()]
    return found


def _loaded_slopes(slopes: dict[str, dict[str, float | None]]) -> Any:
    return np.array(
        [
            [np.nan if slope is None else float(slope) for slope in map(by_name.get, INDICATORS)]
            for by_name in (slopes[season.name.lower()] for season in Season)
        ]
    )


def _cell(bag: dict[str, Any]) -> ModelCell:
    cell = ModelCell(Season[bag["season"].upper()], int(bag["section"]))
    if not 0 <= cell.section < len(SECTIONS):
        raise ValueError(f"unknown section {cell.section}")
    return cell


def _signature(configuration: str, features: list[str], score: float) -> Signature:
    indices = tuple(FEATURES.index(name) for name in features)
    return Signature(_NAMES[configuration], indices, float(score))


MAX_ROWS: Final = 100_000
#: Of all pages together, decompressed.
MAX_PAGE_BYTES: Final = 32 * MiB
_CHUNKS: Final = 256  #: columns x row groups
_FOOTER_TEXT: Final = 64 * 1024
_FOOTER_ITEMS: Final = 1_000

#: They expand one byte to about twenty; gzip to a thousand, Brotli and Zstandard to many more.
_CODECS: Final = ("SNAPPY", "UNCOMPRESSED")
_TYPES: Final = ("DOUBLE", "BYTE_ARRAY")
#: PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY.
_ENCODINGS: Final = (0, 2, 8)
#: Fields of a page header and of the three headers that it may contain.
_DECOMPRESSED, _COMPRESSED = 2, 3
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8
_COUNT: Final = 1
_ENCODING: Final = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_DEPTH: Final = 8


def read_table(data: bytes, texts: Sequence[str]) -> pa.Table:
    """Read a table from an untrusted sender. The columns `texts` are dictionary-encoded.

    A few bytes of Parquet can stand for any number of values, by codec, dictionary, run lengths or
    repeated strings, and the sizes in the footer are the sender's. So the page headers are parsed
    here (Thrift's compact protocol), and all that Arrow would allocate is added up, before any page
    is decoded. Codecs and encodings that could exceed the sum are refused.
    """
    with pq.ParquetFile(
        pa.BufferReader(data),
        read_dictionary=list(texts),
        thrift_string_size_limit=_FOOTER_TEXT,
        thrift_container_size_limit=_FOOTER_ITEMS,
    ) as file:
        _check_table(data, file.metadata)
        return file.read(use_threads=False)


def _check_table(data: bytes, footer: pq.FileMetaData) -> None:
    if footer.num_rows > MAX_ROWS:
        raise JobFormatError(
            f"the table has {footer.num_rows:,} rows; at most {MAX_ROWS:,} are accepted"
        )
    if footer.num_columns * footer.num_row_groups > _CHUNKS:
        raise JobFormatError(f"the table is in more than {_CHUNKS} column chunks")
    if not (footer.created_by or "").startswith("parquet-cpp"):
        raise JobFormatError(f"the table was written by {footer.created_by!r}, not by Arrow")
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(footer.num_columns)]
    left = MAX_PAGE_BYTES
    for chunk in chunks:
        if chunk.compression not in _CODECS or chunk.physical_type not in _TYPES:
            kind = f"{chunk.physical_type} in {chunk.compression}"
            raise JobFormatError(
                f"column {chunk.path_in_schema!r} is {kind}, which is not accepted"
            )
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        for count, size in _pages(data, start, start + chunk.total_compressed_size):
            left -= size
            if not 0 <= count <= MAX_ROWS or left < 0:
                name = chunk.path_in_schema
                raise JobFormatError(
                    f"column {name!r}: {count:,} values in {size:,} bytes are too many"
                )


def _pages(data: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """The number of values and the decompressed size of each page."""
    if not 0 <= at <= end <= len(data):
        raise JobFormatError("the table has pages outside the file")
    while at < end:
        header, at = _struct(data, at)
        compressed, size = header.get(_COMPRESSED, -1), header.get(_DECOMPRESSED, -1)
        kinds = [kind for kind in _ENCODING if kind in header]
        if compressed < 0 or size < 0 or len(kinds) != 1:
            raise JobFormatError(f"the table has an unreadable page before byte {at:,}")
        page = header[kinds[0]]
        if page.get(_ENCODING[kinds[0]]) not in _ENCODINGS:
            raise JobFormatError("the table has a page in an encoding that is not accepted")
        yield page.get(_COUNT, -1), size
        at += compressed
    if at != end:
        raise JobFormatError("the table has a page that is longer than its column")


def _struct(data: bytes, at: int, depth: int = _DEPTH) -> tuple[dict[int, Any], int]:
    """Field number → value. A repeated field is refused: readers might take different values."""
    found: dict[int, Any] = {}
    number = 0
    while byte := data[at]:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _integer(data, at)
        if number in found or not depth:
            raise JobFormatError("the table has an ambiguous page header")
        found[number], at = _value(data, at, byte & 0x0F, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true, false: the kind is the value
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 8:  # bytes, not needed
        size, at = _varint(data, at)
        return None, at + size
    if kind == 12:
        return _struct(data, at, depth - 1)
    raise JobFormatError(f"the table has a page header with a value of kind {kind}")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise JobFormatError("the table has a page header with an endless number")
