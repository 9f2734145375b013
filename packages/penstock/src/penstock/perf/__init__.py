"""The load generator behind `penstock perf`: publishers and consumers of any broker."""
