"""`echelon view`: the page of `echelon_web` for the results of a finished run, to read only, on
this machine only.
"""
