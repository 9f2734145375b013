"""What every room may use: configuration, errors, logging, metrics, clocks."""
