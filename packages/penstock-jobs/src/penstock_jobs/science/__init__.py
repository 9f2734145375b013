"""Source tracking: where pollution in water comes from, by the indicators counted in it."""
