"""`penstock science`: source tracking as a command, with the interface of the Ichnaea script.

It takes the same arguments (`--aging=DIR --models=ZIP build data.csv`) and prints the same lines,
so a worker can run it as its script.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from penstock.core.errors import ConfigurationError
from penstock_jobs.commands.options import read_agings, read_file

app = typer.Typer(no_args_is_help=True, help="Source tracking of water pollution.")


@dataclass(frozen=True, slots=True)
class SciencePaths:
    aging: Path | None
    models: Path | None


@app.callback()
def science(
    context: typer.Context,
    aging: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Decay trials of indicators: env%column%-%aging%.txt."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(metavar="ZIP", help="The model file: written by build, read by predict."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
    verbose: Annotated[bool, typer.Option("--verbose", hidden=True)] = False,
) -> None:
    """Source tracking of water pollution, by the indicators counted in samples."""
    context.obj = SciencePaths(aging, models)


@app.command()
def install() -> None:
    """Does nothing; part of the interface of the Ichnaea script."""


@app.command()
def build(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="The reference matrix, a CSV.")],
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    ages: Annotated[
        bool,
        typer.Option(
            "--ages/--fresh",
            help="Models for all ages and both seasons, or for fresh samples only.",
        ),
    ] = False,
    master: Annotated[
        str, typer.Option(envvar="PENSTOCK_SPARK_MASTER", metavar="URL", help="The Spark master.")
    ] = "local[*]",
) -> None:
    """Build models from samples of known origin."""
    from penstock_jobs.science.decay import decay_coefficients
    from penstock_jobs.science.matrix import prepare, read_csv
    from penstock_jobs.science.model import ALL, FRESH, new_model, searches
    from penstock_jobs.science.model_file import save_model
    from penstock_jobs.science.spark import build_on_spark as build_on
    from penstock_jobs.science.validation import calibrate
    from penstock_spark.session import flow_session

    target = _given(context.obj.models, "--models")
    matrix = prepare(read_csv(read_file(data)))
    model = new_model(
        matrix, decay_coefficients(read_agings(str(_given(context.obj.aging, "--aging")))), seed
    )
    wanted = searches(ALL if ages else FRESH)
    with flow_session("science", master) as spark:
        model = build_on(spark, model, wanted, _PrintedProgress())
    target.write_bytes(save_model(replace(model, calibration=calibrate(model))))


@app.command()
def predict(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="The samples, a CSV.")],
    explain: Annotated[
        bool, typer.Option("--explain", help="Add confidence, age, dilution and deciding features.")
    ] = False,
) -> None:
    """Predict the origin of samples."""
    from penstock_jobs.science.matrix import prepare, read_csv
    from penstock_jobs.science.model_file import load_model
    from penstock_jobs.science.prediction import SourcePredictor
    from penstock_jobs.science.report import data_frame, explanation, prediction_lines

    model = load_model(read_file(_given(context.obj.models, "--models")))
    samples = prepare(read_csv(read_file(data)))
    begun = 0

    def announce(done: int, _: object = None) -> None:
        """Samples are predicted in blocks; the next one begins when a block is done."""
        nonlocal begun
        for number in range(begun + 1, min(done + 1, len(samples)) + 1):
            typer.echo(f"***New sample, # {number} / {len(samples)}")
        begun = min(done + 1, len(samples))

    predictor = SourcePredictor(model)
    announce(0)
    predictions = predictor.predict_in_blocks(samples.values, samples.seasons, announce)
    for each in predictions.values():
        for line in prediction_lines(data.stem, samples, each):
            typer.echo(line)
    if explain:
        typer.echo("Explained:")
        for line in data_frame(explanation(predictions["ERROR2"]), samples.samples):
            typer.echo(line)


@app.command()
def validate(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="The reference matrix, a CSV.")],
    samples: Annotated[int, typer.Option(min=50, help="Simulated samples for validation.")] = 1_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    methods: Annotated[
        str, typer.Option(metavar="NAME,…", help="Kinds of classifiers; empty for all.")
    ] = "lda,bayes,logistic,knn",
    boosted: Annotated[bool, typer.Option(help="Also validate gradient-boosted trees.")] = True,
) -> None:
    """Validate the methods on simulated samples whose base was held out."""
    from penstock_jobs.science import validation
    from penstock_jobs.science.classifiers import CONFIGURATIONS
    from penstock_jobs.science.decay import decay_coefficients
    from penstock_jobs.science.matrix import prepare, read_csv

    trials = read_agings(str(_given(context.obj.aging, "--aging")))
    wanted = [name for name in methods.split(",") if name]
    kinds = {each.kind for each in CONFIGURATIONS}
    if unknown := [name for name in wanted if name not in kinds]:
        raise typer.BadParameter(
            f"--methods {unknown[0]}: must be one of {', '.join(sorted(kinds))}"
        )
    typer.echo(validation.comparison_heading())
    for score in validation.compare_methods(
        prepare(read_csv(read_file(data))),
        decay_coefficients(trials),
        configurations=[each for each in CONFIGURATIONS if not wanted or each.kind in wanted],
        samples=samples,
        seed=seed,
        boosted=boosted,
    ):
        typer.echo(validation.comparison_line(score))


@app.command()
def sources(
    context: typer.Context,
    reference: Annotated[Path, typer.Argument(help="The reference matrix, a CSV.")],
    data: Annotated[Path, typer.Argument(help="The samples, a CSV.")],
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
) -> None:
    """Predict one of four sources: human, cattle, pig or poultry."""
    from penstock_jobs.science.boosted import SourceClassifier
    from penstock_jobs.science.decay import decay_coefficients
    from penstock_jobs.science.matrix import prepare, read_csv

    trials = decay_coefficients(read_agings(str(_given(context.obj.aging, "--aging"))))
    known = prepare(read_csv(read_file(reference)))
    samples = prepare(read_csv(read_file(data)))
    classifier = SourceClassifier(known, trials, seed=seed)
    prediction = classifier.predict(samples.values, samples.seasons)
    rows = zip(samples.samples, prediction.sources, prediction.confidence, strict=True)
    for name, source, confidence in rows:
        typer.echo(f"{name:<16}{source or 'no counts':<10}{confidence:6.2f}")
    correct, labelled = prediction.right(samples.samples)
    typer.echo(f"{correct} of {labelled} match the source in their id")


@app.command()
def fake(
    span: Annotated[str, typer.Argument(metavar="DURATION:INTERVAL", help="In seconds.")] = "10:1",
) -> None:
    """Take time and print progress."""
    try:
        duration, interval = (float(part) for part in span.split(":"))
    except ValueError as error:
        raise typer.BadParameter(f"{span!r} should be DURATION:INTERVAL in seconds") from error
    if duration < 0 or interval <= 0:
        raise typer.BadParameter(f"{span!r} should not be negative")
    printed = _PrintedProgress()
    start = time.monotonic()
    finish = datetime.now(UTC) + timedelta(seconds=duration)
    while (elapsed := time.monotonic() - start) < duration:
        printed(elapsed / duration, finish)
        time.sleep(min(interval, duration - elapsed))
    printed(1.0)


@app.command()
def synthesize(
    folder: Annotated[Path, typer.Argument(help="The folder for the files.")],
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same files.")] = 1,
) -> None:
    """Write synthetic data: a reference, samples, and decay trials."""
    from penstock_jobs.formats.csv import write_csv
    from penstock_jobs.science import synthetic
    from penstock_jobs.science.indicators import trials_file

    trials = folder / "aging"
    trials.mkdir(parents=True, exist_ok=True)
    (folder / "reference.csv").write_text(write_csv(synthetic.reference_columns(seed)))
    (folder / "samples.csv").write_text(write_csv(synthetic.test_columns(seed)))
    for name, agings in synthetic.agings(seed).items():
        for aging in agings:
            file = trials / trials_file(name, aging.position)
            file.write_text(synthetic.trials_text(aging))
    typer.echo(f"reference.csv, samples.csv and aging/ are in {folder}")


class _PrintedProgress:
    def __init__(self) -> None:
        self._start = time.time()

    def __call__(self, share: float, finish: datetime | None = None) -> None:
        typer.echo(f"percent: {100 * share:.1f}%")
        if share > 0 and finish is None:  # estimated from the share
            left = (time.time() - self._start) * (1 - share) / share
            finish = datetime.now(UTC) + timedelta(seconds=left)
        if finish is not None:
            typer.echo(f"finish: {finish.isoformat(timespec='seconds')}")


def _given(path: Path | None, option: str) -> Path:
    if path is None:
        raise ConfigurationError(f"{option} is missing: add it before the name of the subcommand")
    return path
