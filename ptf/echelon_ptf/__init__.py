"""What the test bodies are written with: frames, table entries, a controller, queue rates."""
