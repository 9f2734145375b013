"""Kinds of work: what is done for each type of request, one class each."""
