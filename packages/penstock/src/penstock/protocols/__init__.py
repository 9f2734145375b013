"""One folder per protocol: its sans-IO codec and its terminal."""
