"""The vocabulary of the test bodies: frames, table entries, and a controller."""
