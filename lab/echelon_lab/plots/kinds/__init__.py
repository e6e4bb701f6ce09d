"""The kinds of pictures, one module each."""
