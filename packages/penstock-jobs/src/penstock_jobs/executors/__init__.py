"""Executors: how the jobs of each type are run."""
