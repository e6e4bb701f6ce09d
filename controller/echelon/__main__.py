"""`python -m echelon` is the command `echelon`."""

from echelon.cli import main

if __name__ == "__main__":
    main()
