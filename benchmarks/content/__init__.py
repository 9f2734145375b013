"""How fast publications find subscriptions by their content."""
