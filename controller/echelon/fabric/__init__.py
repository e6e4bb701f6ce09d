"""The fabric: model, files, routing."""
