"""The broker's kernel: contract, buckets and spools, virtual hosts, write batch, log, users."""
