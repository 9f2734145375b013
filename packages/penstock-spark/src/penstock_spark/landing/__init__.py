"""Any stream in a Delta table, exactly once: `penstock lake land`, or in a notebook `land`.

`settings.py` is what a person asks for, `formats/` decodes bodies, `message_decoder.py` makes rows
and dead letters of messages with Arrow alone, `engines.py` has Spark or this process run it, and
`lander.py` commits the files with the offsets. The tables are those of `penstock_spark.lake`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock_spark.landing.lander import LandingTotals


def land(
    url: str, *, spark: SparkSession | None = None, max_batch: int = 200_000, **settings: Any
) -> LandingTotals:
    """Land what the streams have now, in this process or by a Spark session.

    `settings` are those of a table in the TOML file: `to`, `stream` or `mqtt`, `format`, ….
    """
    from penstock_spark.landing.engines import LandingEngine, LocalEngine, SparkEngine
    from penstock_spark.landing.lander import TableLander
    from penstock_spark.landing.runner import LandingRunner
    from penstock_spark.landing.settings import landing_settings
    from penstock_spark.landing.source import StreamSource

    def engine(source: StreamSource) -> LandingEngine:
        return LocalEngine(source.endpoint) if spark is None else SparkEngine(spark, url)

    checked = landing_settings(settings, "land")
    lander = TableLander(checked, StreamSource.of(url, checked), engine, max_batch=max_batch)
    LandingRunner([lander], once=True).run()
    return lander.totals


__all__ = ["land"]
