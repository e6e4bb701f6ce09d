"""Sweeps: a base scenario, with any of its keys varied, under several policies."""
