"""Placement: which hosts the ranks of each job are on, and what that costs."""
