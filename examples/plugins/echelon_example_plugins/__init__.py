"""A policy, a paradigm and a target that Echelon finds by their entry points."""
