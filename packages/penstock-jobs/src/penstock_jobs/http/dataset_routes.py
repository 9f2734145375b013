"""The routes of data sets: their check, the matrices, and versions that are saved."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from penstock.core.errors import ConfigurationError
from penstock_jobs.datasets.matrices import NAME_PATTERN, DataMatrix, rows_of_csv
from penstock_jobs.http import schemas, submission
from penstock_jobs.http.routes import JobView
from penstock_jobs.http.schemas import (
    CheckedDataset,
    DatasetVersion,
    MatrixEntry,
    NewDataset,
    NewMatrix,
    problem_responses,
)
from penstock_jobs.http.submission import DatasetPurpose
from penstock_jobs.science.matrix import read_csv
from penstock_jobs.service import JobService

Name = Annotated[str, Path(pattern=NAME_PATTERN, examples=["river-2026"])]


def matrix_routes() -> APIRouter:
    router = APIRouter(tags=["data sets"])

    @router.get("/matrices", responses=problem_responses())
    async def matrices(jobs: JobView) -> list[MatrixEntry]:
        """The predefined matrices: their columns, and what the cells of each are."""
        return [MatrixEntry.of(each) for each in await asyncio.to_thread(jobs.datasets.matrices)]

    @router.put("/matrices/{name}", responses=problem_responses(400, 403, 409))
    async def put_matrix(jobs: JobView, name: Name, matrix: NewMatrix) -> MatrixEntry:
        """Add or replace a matrix; for operators."""
        new = DataMatrix(name, matrix.title, tuple(matrix.columns))
        await jobs.put_matrix(new)
        return MatrixEntry.of(new)

    @router.delete("/matrices/{name}", status_code=204, responses=problem_responses(403, 404, 409))
    async def delete_matrix(jobs: JobView, name: Name) -> None:
        """Remove a matrix; data sets that were entered with it stay."""
        await jobs.remove_matrix(name)

    return router


def dataset_routes() -> APIRouter:
    router = APIRouter(tags=["data sets"])

    @router.post(
        "/datasets/check",
        responses=problem_responses(413, 422),
        openapi_extra={"requestBody": schemas.DATASET_BODY},
    )
    async def check(
        http: Request, purpose: DatasetPurpose = DatasetPurpose.PREDICT
    ) -> CheckedDataset:
        """Check a CSV. Returns all problems, by row and column."""
        checked = await asyncio.to_thread(submission.check_dataset, await http.body(), purpose)
        return CheckedDataset.model_validate(checked)

    @router.get("/datasets", responses=problem_responses())
    async def datasets(jobs: JobView) -> list[DatasetVersion]:
        """The last version of each data set, the newest first."""
        found = await asyncio.to_thread(jobs.datasets.datasets)
        return [DatasetVersion.model_validate(each) for each in found]

    @router.put(
        "/datasets/{name}",
        responses=problem_responses(400, 403, 404, 413),
        openapi_extra={"requestBody": schemas.NEW_DATASET_BODY},
    )
    async def put(
        jobs: JobView,
        http: Request,
        name: Name,
        matrix: Annotated[str | None, Query(max_length=100, description="Of a CSV.")] = None,
    ) -> DatasetVersion:
        """Save a data set as its next version. Each cell is checked. What the last version has is
        that version."""
        chosen, rows = await _read_rows(jobs, http, matrix)
        return DatasetVersion.model_validate(await jobs.save_dataset(name, chosen, rows))

    @router.get("/datasets/{name}", responses=problem_responses(404))
    async def versions(jobs: JobView, name: Name) -> list[DatasetVersion]:
        """The versions of a data set, the newest first."""
        found = await asyncio.to_thread(jobs.datasets.versions, name)
        return [DatasetVersion.model_validate(each) for each in found]

    @router.get(
        "/datasets/{name}/{version}",
        response_class=Response,
        responses=schemas.CSV_RESPONSES | problem_responses(404),
    )
    async def content(
        jobs: JobView, name: Name, version: Annotated[int, Path(ge=1, le=2**31 - 1)]
    ) -> Response:
        """A version as CSV."""
        text = await asyncio.to_thread(jobs.datasets.text, f"{name}@{version}")
        return Response(text, media_type="text/csv")

    @router.delete("/datasets/{name}", status_code=204, responses=problem_responses(403, 404))
    async def delete(jobs: JobView, name: Name) -> None:
        """Remove a data set with all versions; for operators."""
        jobs.check_operator("remove data sets")
        await asyncio.to_thread(jobs.datasets.remove, name)
        await jobs.log_action("removed data set", name)

    return router


async def _read_rows(
    jobs: JobService, http: Request, matrix: str | None
) -> tuple[DataMatrix, list[list[str]]]:
    """A CSV of the named matrix, or JSON that names it."""
    body = await http.body()
    if not http.headers.get("content-type", "").startswith("text/csv"):
        given = _read_dataset(body)
        return await asyncio.to_thread(jobs.datasets.matrix, given.matrix), given.rows
    if matrix is None:
        raise ConfigurationError("a CSV needs the parameter 'matrix'")
    chosen = await asyncio.to_thread(jobs.datasets.matrix, matrix)
    columns = await asyncio.to_thread(read_csv, body, foreign=True)
    return chosen, rows_of_csv(chosen, columns)


def _read_dataset(body: bytes) -> NewDataset:
    try:
        return NewDataset.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error
