"""Steps that run on Spark share one session."""

from tests.spark import spark

__all__ = ["spark"]
