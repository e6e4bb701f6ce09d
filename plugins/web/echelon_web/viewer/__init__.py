"""`echelon view`: the page for the results of a finished run, read-only and local."""
