"""Where commands run: on this machine, or on another over SSH."""
