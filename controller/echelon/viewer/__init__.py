"""`echelon view`: the page of `echelon.web` for the results of a finished run, to read only, on this machine only."""
