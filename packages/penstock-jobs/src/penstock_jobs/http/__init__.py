"""The HTTP API of jobs: `penstock job api`."""
