"""Many switches that acknowledge everything, and what a service takes for them."""
