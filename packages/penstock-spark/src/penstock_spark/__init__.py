"""The engine room: streams into Spark, and from Spark back to the broker.

    from penstock_spark import register

    register(spark)
    messages = spark.readStream.format("penstock").option("url", …).option("streams", …).load()

`docs/spark.md` is the connector's page.
"""

from penstock_spark.connector.source import register
from penstock_spark.errors import DataLost
from penstock_spark.session import open_session

__all__ = ["DataLost", "open_session", "register"]
