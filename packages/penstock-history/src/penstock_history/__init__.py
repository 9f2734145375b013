"""What was published, kept on request and asked about in the language of subscriptions.

A request to keep something binds the stream `history` to the broker's content exchange: from then
on what satisfies it lies there, in order and for good. The *archive* is the same in PostgreSQL, for
questions that want few of many; `spark_table.py` asks the stream itself, on Spark. The *historian*
is the program in between: it takes requests and questions from the overlay and answers them there.
"""

from typing import Final

#: The stream that holds what is kept, and the exchange publications come from.
STREAM: Final = "history"
EXCHANGE: Final = "content"
