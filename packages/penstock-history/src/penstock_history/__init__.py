"""An archive of publications, stored on request and queried in the subscription language.

A request to store publications binds the stream `history` to the broker's content exchange, so the
stream has all that satisfy it, in order. The *archive* has the same in PostgreSQL, for selective
queries; `spark_table.py` queries the stream with Spark. The *historian* receives requests and
queries over the overlay and publishes the results.
"""

from typing import Final

#: The stream of stored publications, and the exchange it is bound to.
STREAM: Final = "history"
EXCHANGE: Final = "content"
