"""The engine room: streams into Spark, and from Spark back to the broker.

    from penstock.pipeline import register

    register(spark)
    messages = spark.readStream.format("penstock").option("url", …).option("streams", …).load()

`docs/spark.md` is the connector's page.
"""

from penstock.pipeline.connector.source import register
from penstock.pipeline.errors import DataLost
from penstock.pipeline.session import open_session

__all__ = ["DataLost", "open_session", "register"]
