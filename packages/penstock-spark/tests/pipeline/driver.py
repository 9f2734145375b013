"""A Spark driver as a process of its own, to be killed: streams into Parquet, with a checkpoint.

    python -m tests.pipeline.driver FOLDER MASTER follow|once OPTION=VALUE…

Writes a line for every batch it has done.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock_spark import open_session


def main() -> None:
    folder, master, how, *pairs = sys.argv[1:]
    spark = open_session("driver", master, {"spark.task.maxFailures": "4"})
    spark.sparkContext.setLogLevel("ERROR")
    options = dict(pair.split("=", 1) for pair in pairs)
    frame = spark.readStream.format("penstock").options(**options).load()
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(Path(folder) / "out"))
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(**({"availableNow": True} if how == "once" else {"processingTime": "0 seconds"}))
        .start()
    )
    done = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(1))
        for batch in query.recentProgress:
            if batch["batchId"] > done and batch["numInputRows"]:
                done = batch["batchId"]
                print(f"batch {done} {batch['numInputRows']}", flush=True)
    spark.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main()
