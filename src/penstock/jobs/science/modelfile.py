"""A model as a file: a zip of plain data that any machine can read, and nothing that runs.

Classifiers are not in it: they are fitted again, in a moment, when the file is read. A model comes
from anybody: what its files decompress and decode to is bounded before that is done.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.units import MiB
from penstock.jobs import archive
from penstock.jobs.errors import FormError
from penstock.jobs.forms.values import check_json
from penstock.jobs.science import parquet
from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.classifiers import CONFIGURATIONS
from penstock.jobs.science.indicators import FEATURES, INDICATORS, SAMPLE, SEASON, Season
from penstock.jobs.science.matrix import Matrix
from penstock.jobs.science.model import Cell, Model
from penstock.jobs.science.signatures import Signature
from penstock.jobs.science.simulation import SECTIONS

#: What is in the files, by their first version.
SCHEMA: Final = 1
#: Of its files, unpacked. A thousand samples and fourteen cells of 750 signatures have 3 MiB.
BYTES: Final = 16 * MiB
#: In each of its JSON files: numbers, strings, lists.
_VALUES: Final = 500_000
#: Of the id of a sample.
_TEXT: Final = 255
_NAMES: Final = {configuration.name: configuration for configuration in CONFIGURATIONS}


def save(model: Model) -> bytes:
    matrix = _saved_matrix(model.matrix)
    manifest = {
        "schema": SCHEMA,
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
    return archive.pack(
        {
            "manifest.json": _json(manifest),
            "coefficients.json": _json(slopes),
            "signatures.json": _json(bags),
            "matrix.parquet": matrix,
        }
    )


def load(data: bytes) -> Model:
    files = archive.contents(data, most_bytes=BYTES)
    try:
        manifest = _read_json(files["manifest.json"])
        if manifest["schema"] != SCHEMA:
            raise FormError(f"a model of version {manifest['schema']}; {SCHEMA} is understood here")
        slopes = _read_json(files["coefficients.json"])
        bags = _read_json(files["signatures.json"])
        model = Model(
            _loaded_matrix(files["matrix.parquet"]),
            Coefficients(_loaded_slopes(slopes)),
            {_cell(bag): tuple(_signature(*each) for each in bag["signatures"]) for bag in bags},
            int(manifest["seed"]),
        )
    except KeyError as error:
        raise FormError(f"not a model: {error.args[0]!r} is not in it") from error
    except (ValueError, TypeError, IndexError, OSError, RecursionError, pa.ArrowException) as error:
        raise FormError(f"not a model: {error}") from error
    if hashlib.sha256(model.matrix.values.tobytes()).hexdigest() != manifest["matrix"]:
        raise FormError("not the model it was: the matrix has changed")
    return model


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode()


def _read_json(data: bytes) -> Any:
    check_json(data, _VALUES)
    return json.loads(data)


def _saved_matrix(matrix: Matrix) -> bytes:
    columns: dict[str, Any] = {
        SAMPLE: list(matrix.samples),
        SEASON: [season.name.lower() for season in matrix.seasons],
    }
    columns |= {name: matrix.values[:, at] for at, name in enumerate(INDICATORS)}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def _loaded_matrix(data: bytes) -> Matrix:
    table = parquet.read_table(data, (SAMPLE, SEASON))
    values = np.column_stack([table[name].to_numpy() for name in INDICATORS]).astype(np.float64)
    seasons = tuple(Season[name.upper()] for name in _texts(table[SEASON]))
    return Matrix(tuple(_texts(table[SAMPLE])), values, seasons)


def _texts(column: pa.ChunkedArray) -> list[str]:
    found: list[str] = []
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        if any(len(word) > _TEXT for word in words):
            raise FormError(f"not a model: a name is longer than {_TEXT} characters")
        found += [words[at] for at in chunk.indices.to_pylist()]
    return found


def _loaded_slopes(slopes: dict[str, dict[str, float | None]]) -> Any:
    return np.array(
        [
            [np.nan if slope is None else float(slope) for slope in map(by_name.get, INDICATORS)]
            for by_name in (slopes[season.name.lower()] for season in Season)
        ]
    )


def _cell(bag: dict[str, Any]) -> Cell:
    cell = Cell(Season[bag["season"].upper()], int(bag["section"]))
    if not 0 <= cell.section < len(SECTIONS):
        raise ValueError(f"there is no section {cell.section}")
    return cell


def _signature(configuration: str, features: list[str], score: float) -> Signature:
    places = tuple(FEATURES.index(name) for name in features)
    return Signature(_NAMES[configuration], places, float(score))
