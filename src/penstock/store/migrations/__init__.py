"""The schema, step by step. Alembic finds `env.py` and `versions/` here, inside the package.

A step is a file, written in PostgreSQL's own words: what it makes, and how to take it back. Steps
that have been released are not changed; the next one changes what they made.
"""

from typing import Final

#: The newest step: what this version of Penstock needs the database to be at.
HEAD: Final = "0012"
