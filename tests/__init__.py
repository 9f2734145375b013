"""A package of its own, lest one of this name that a dependency installs be taken for it."""
