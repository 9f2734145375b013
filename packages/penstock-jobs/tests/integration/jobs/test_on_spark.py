"""Work on Spark, asked for through the queue: one session, in a process of the worker's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock_jobs.client import JobsClient
from penstock_jobs.errors import JobFailed
from penstock_jobs.model import BuildModels, JobOptions, PredictModels, SparkCall
from penstock_jobs.science import synthetic
from penstock_jobs.science.classifiers import CONFIGURATIONS
from penstock_jobs.science.decay import decay_coefficients
from penstock_jobs.science.matrix import prepare
from penstock_jobs.science.model import FRESH, build, new_model, searches
from penstock_jobs.science.model_file import load_model
from tests.integration.jobs.running import PATIENCE, SAMPLES, WorkerProcess, clean, working
from tests.peers import Penstock

#: A session of their own takes longer to start than a quick test may.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("java")]

METHOD = "bayes"


@pytest.fixture
async def client(penstock: Penstock) -> AsyncIterator[JobsClient]:
    clean(penstock.url)
    async with (
        asyncio.timeout(5 * PATIENCE),
        working(penstock.url, spark="local[2]", methods=(METHOD,)),
        JobsClient(penstock.url) as opened,
    ):
        yield opened
    clean(penstock.url)


async def test_models_built_on_spark_are_those_built_here_and_predict(client: JobsClient) -> None:
    reference, trials = synthetic.reference_columns(1), synthetic.agings(1)

    built = await (await client.submit(BuildModels("build", reference, trials))).result()
    samples = PredictModels("predict", synthetic.test_columns(1), built.models)
    job = await client.submit(samples)
    counts = [each.results[-1] for each in [each async for each in job] if each.results]
    predicted = await job.result()
    counted = await client.submit(SparkCall("count", f"{SAMPLES}:count_on_spark", (1_000,)))
    printed = "".join([each.output or "" async for each in counted])

    chosen = [each for each in CONFIGURATIONS if each.kind == METHOD]
    here = build(new_model(prepare(reference), decay_coefficients(trials)), searches(FRESH, chosen))
    assert load_model(built.models).bags == here.bags
    assert {each.total_samples for each in (*counts, *predicted.results)} == {15}
    judged = [each.predicted_samples for each in counts if each.dataset is None]
    assert judged
    assert judged == sorted(judged)
    assert judged[-1] == predicted.results[-1].predicted_samples
    assert (await counted.result()).value == 1_000
    assert "counting 1,000 rows\n" in printed


@pytest.mark.parametrize("scheme", ["amqp", "amqp+1.0"])
def test_a_function_on_spark_is_called_from_the_command_line(
    penstock: Penstock, tmp_path: Path, scheme: str
) -> None:
    clean(penstock.url)
    url = penstock.url.replace("amqp", scheme, 1)
    allowed = ("--spark", "local[1]", "--allow", SAMPLES, "--type", "spark")
    worker = WorkerProcess(url, tmp_path, "worker", *allowed).ready()
    target = tmp_path / "count.json"
    words = ["submit", "spark", "--url", url, f"{SAMPLES}:count_on_spark", "1000"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "job", *words, "-o", str(target)],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
    )
    assert worker.stop() == 0
    clean(penstock.url)
    assert done.returncode == 0, done.stderr
    assert "counting 1,000 rows\n" in done.stdout
    assert target.read_text() == "1000\n"


async def test_after_work_on_spark_was_ended_there_is_another_session(client: JobsClient) -> None:
    soon = JobOptions(hard=20, attempts=1)
    endless = await client.submit(SparkCall("long", f"{SAMPLES}:count_on_spark", (10**15,)), soon)
    with pytest.raises(JobFailed, match="ended after 20 seconds"):
        await endless.result()

    after = await client.submit(SparkCall("after", f"{SAMPLES}:count_on_spark", (10,)))

    assert (await after.result()).value == 10
