"""The pages of the site that follow from the code: commands, files, API, P4 tables, plug-ins. `make docs` makes them."""
