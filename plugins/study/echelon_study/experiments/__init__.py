"""Sweeps of measurements, with tables, figures and a report: published experiments, and the evaluation of policies."""
