"""A pipeline among cross traffic, under every policy."""
