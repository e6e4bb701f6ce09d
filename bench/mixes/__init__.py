"""Scenarios as clusters have them, and what the engine and the policies take for them."""
