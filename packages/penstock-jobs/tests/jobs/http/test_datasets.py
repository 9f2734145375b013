"""Data sets over HTTP, and their versions in the database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_jobs.datasets.matrices import BUILT_IN, DataMatrix
from penstock_jobs.datasets.repository import DatasetRepository
from penstock_jobs.model import BuildModels, JobResponse, PredictModels
from penstock_jobs.science.model import SourceModel
from penstock_jobs.science.model_file import save_model
from penstock_store import Database
from tests.databases import copy_of
from tests.jobs.http.memory import MemoryJobs
from tests.jobs.science.conftest import matrix, model, slopes

__all__ = ["matrix", "model", "slopes"]

ROW = ["P6-X01", "1,4E+05", "820", "<20"]
PHAGES = BUILT_IN["phages"]


@pytest.fixture
def datasets(embedded_template: str) -> Iterator[DatasetRepository]:
    with copy_of(embedded_template) as url, Database(url) as database:
        yield DatasetRepository(database)


async def test_a_matrix_is_chosen_filled_and_saved(api: httpx.AsyncClient) -> None:
    matrices = {each["name"]: each for each in (await api.get("/matrices")).json()}
    assert [each["kind"] for each in matrices["phages"]["columns"]] == ["id", *["number"] * 3]

    body = {"matrix": "phages", "rows": [ROW]}
    first = (await api.put("/datasets/river", json=body)).json()
    body["rows"] = [ROW, ["P6-X02", "", "many", ""]]
    refused = await api.put("/datasets/river", json=body)
    csv = "GA17;CLASS;FC;SOMCPH\n<20;P6-X01;1,4E+05;820\n;P6-X02;;7\n"
    headers = {"Content-Type": "text/csv"}
    url = "/datasets/river?matrix=phages"
    second = (await api.put(url, content=csv, headers=headers)).json()

    assert (first["reference"], first["samples"]) == ("river@1", 1)
    assert refused.status_code == 422
    problem = {"row": 3, "column": "SOMCPH", "text": "'many' is not a number"}
    assert refused.json()["problems"] == [problem]
    assert (second["reference"], second["samples"]) == ("river@2", 2)
    assert [each["version"] for each in (await api.get("/datasets/river")).json()] == [2, 1]
    assert (await api.get("/datasets/river/1")).text == (
        "CLASS;FC;SOMCPH;GA17\nP6-X01;1,4E+05;820;<20\n"
    )
    assert (await api.delete("/datasets/river")).status_code == 204
    assert (await api.get("/datasets/river/1")).status_code == 404


async def test_a_matrix_of_ones_own_may_have_columns_that_models_do_not_use(
    api: httpx.AsyncClient,
) -> None:
    own = {"title": "River Ter", "columns": ["CLASS", "FC", "pH"]}
    assert (await api.put("/matrices/ter", json=own)).status_code == 200
    assert (await api.put("/matrices/phages", json=own)).status_code == 409
    assert (await api.put("/matrices/x", json={"columns": ["FC", "GA17"]})).status_code == 422
    body = {"matrix": "ter", "rows": [["P6-X01", "3", "acid"]]}
    assert (await api.put("/datasets/ter", json=body)).status_code == 200
    foreign = await api.put(
        "/datasets/ter?matrix=phages",
        content="CLASS;pH\na;1\n",
        headers={"Content-Type": "text/csv"},
    )
    assert foreign.json()["problems"][0]["text"] == "no column of the matrix 'phages'"
    assert (await api.put("/datasets/ter", json={"matrix": "none", "rows": []})).status_code == 404
    assert (await api.put("/datasets/ter", content=b"{")).status_code == 422
    assert (await api.delete("/matrices/ter")).status_code == 204


async def test_a_job_is_submitted_with_a_saved_data_set_and_the_models_of_a_job(
    api: httpx.AsyncClient, backend: MemoryJobs, model: SourceModel
) -> None:
    await api.put("/datasets/river", json={"matrix": "phages", "rows": [ROW]})
    await backend.submit(BuildModels("built"))
    models = save_model(model)
    await backend.finish("built", JobResponse("built", "build_models", models=models))
    form = {"type": "predict_models", "id": "p", "dataset": "river@1", "models": "built"}

    assert (await api.post("/jobs", files={"": ("", b"")}, data=form)).status_code == 202

    request = backend.requests["p"]
    assert isinstance(request, PredictModels)
    assert (request.dataset["GA17"], request.models) == (("<20",), models)
    for wrong in ({"dataset": "river@9"}, {"models": "none"}):
        refused = await api.post("/jobs", files={"": ("", b"")}, data={**form, "id": "q", **wrong})
        assert refused.status_code == 404


def test_each_save_is_a_version_that_never_changes(datasets: DatasetRepository) -> None:
    saved = datasets.save("river", PHAGES, [ROW], "ada")
    again = datasets.save("river", PHAGES, [ROW, ["", ""]], "bob")
    changed = datasets.save("river", PHAGES, [ROW, ["P6-X02"]], "bob")

    assert (saved.version, again.version, again.saved_by) == (1, 1, "ada")
    assert (changed.version, changed.samples, changed.saved_by) == (2, 2, "bob")
    assert [each.version for each in datasets.versions("river")] == [2, 1]
    assert datasets.columns("river@1")["CLASS"] == ("P6-X01",)
    assert datasets.columns("river") == datasets.columns("river@2")
    assert [each.reference for each in datasets.datasets()] == ["river@2"]
    for wrong in ("river@3", "river@", "river@x", "none"):
        with pytest.raises(NotFound):
            datasets.text(wrong)
    datasets.remove("river")
    with pytest.raises(NotFound):
        datasets.versions("river")


def test_versions_are_numbered_without_gaps_by_many_at_once(datasets: DatasetRepository) -> None:
    with ThreadPoolExecutor(4) as threads:
        saved = threads.map(lambda at: datasets.save("r", PHAGES, [[f"P-{at}"]]), range(12))
        assert sorted(each.version for each in saved) == list(range(1, 13))


def test_matrices_of_ones_own_are_stored(datasets: DatasetRepository) -> None:
    datasets.add_matrix(DataMatrix("ter", "one", ("CLASS", "FC")))
    datasets.add_matrix(DataMatrix("ter", "two", ("CLASS", "pH")))
    assert datasets.matrix("ter") == DataMatrix("ter", "two", ("CLASS", "pH"))
    datasets.remove_matrix("ter")
    for name in ("ter", "none"):
        with pytest.raises(NotFound):
            datasets.remove_matrix(name)
    with pytest.raises(PreconditionFailed, match="built in"):
        datasets.add_matrix(DataMatrix("phages", "", ("CLASS", "FC")))
