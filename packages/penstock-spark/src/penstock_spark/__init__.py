"""The Spark connector for Penstock and RabbitMQ, a lake of Parquet tables, and a flow runner.

    from penstock_spark import register

    register(spark)
    messages = spark.readStream.format("penstock").option("url", …).option("streams", …).load()

`docs/spark.md` describes the connector, `docs/pipeline.md` flows and the lake.
"""

from typing import TYPE_CHECKING

from penstock.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from penstock_spark.connector.query_metrics import QueryMetrics, stream_offsets
    from penstock_spark.connector.source import register
    from penstock_spark.errors import DataLost
    from penstock_spark.session import open_session

__all__ = ["DataLost", "QueryMetrics", "open_session", "register", "stream_offsets"]

__getattr__ = lazy_exports(
    __name__,
    {
        "connector.query_metrics": ["QueryMetrics", "stream_offsets"],
        "connector.source": ["register"],
        "errors": ["DataLost"],
        "session": ["open_session"],
    },
)
