"""Run by Alembic; the other packages' `env.py` call the same function."""

from penstock_store.schema_environment import run

run()
