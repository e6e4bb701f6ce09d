"""The short cuts of the fluid engine and of what uses it, beside runs that do without them."""
