"""Scenarios run under several policies and compared: what `import echelon` and `echelon run` have in common."""
