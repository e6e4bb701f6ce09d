"""Scenarios: what is run, and what came out: results, report and timeline."""
