"""How well people are counted: what the pipeline makes of a simulated fleet, beside the truth."""
