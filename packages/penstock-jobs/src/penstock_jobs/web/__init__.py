"""The pages of jobs: hand in data, see how far work is, look at what came of it."""
