"""A model as a file: a zip of plain data that any machine can read, and nothing that runs.

Classifiers are not in it: they are fitted again, in a moment, when the file is read.
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

from penstock.jobs import archive
from penstock.jobs.errors import FormError
from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.classifiers import CONFIGURATIONS
from penstock.jobs.science.indicators import FEATURES, INDICATORS, SAMPLE, SEASON, Season
from penstock.jobs.science.matrix import Matrix
from penstock.jobs.science.model import Cell, Model
from penstock.jobs.science.signatures import Signature
from penstock.jobs.science.simulation import SECTIONS

#: What is in the files, by their first version.
SCHEMA: Final = 1
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
    files = archive.contents(data)
    try:
        manifest = json.loads(files["manifest.json"])
        if manifest["schema"] != SCHEMA:
            raise FormError(f"a model of version {manifest['schema']}; {SCHEMA} is understood here")
        slopes = json.loads(files["coefficients.json"])
        bags = json.loads(files["signatures.json"])
        model = Model(
            _loaded_matrix(files["matrix.parquet"]),
            Coefficients(_loaded_slopes(slopes)),
            {_cell(bag): tuple(_signature(*each) for each in bag["signatures"]) for bag in bags},
            int(manifest["seed"]),
        )
    except KeyError as error:
        raise FormError(f"not a model: {error.args[0]!r} is not in it") from error
    except (ValueError, TypeError, IndexError, pa.ArrowException) as error:
        raise FormError(f"not a model: {error}") from error
    if hashlib.sha256(model.matrix.values.tobytes()).hexdigest() != manifest["matrix"]:
        raise FormError("not the model it was: the matrix has changed")
    return model


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode()


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
    table = pq.read_table(io.BytesIO(data))
    values = np.column_stack([table[name].to_numpy() for name in INDICATORS]).astype(np.float64)
    seasons = tuple(Season[name.upper()] for name in table[SEASON].to_pylist())
    return Matrix(tuple(table[SAMPLE].to_pylist()), values, seasons)


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
