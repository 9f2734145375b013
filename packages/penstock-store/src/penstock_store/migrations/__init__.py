"""The schema of what applications share: applied batches, dead letter counts, staging tables.

A step is a file in PostgreSQL's SQL: what it creates, and how to remove it. Released steps are not
changed; the next step changes what they made.
"""

from typing import Final

HEAD: Final = "0003"
