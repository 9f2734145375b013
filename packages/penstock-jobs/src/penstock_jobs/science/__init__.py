"""Where faecal pollution in water comes from, by indicators that are counted in it.

A reference matrix of samples of known origin, and trials of how each indicator fades in summer and
in winter, make a bag of small classifiers. A sample from a river is older and thinner than those of
the matrix: for each origin it may have, its age and dilution are estimated and taken back, and the
classifiers vote. Pure functions on arrays; nothing here knows of queues or of Spark.
"""
