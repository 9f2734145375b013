"""Run by Alembic."""

from penstock_store.schema_environment import run

run()
