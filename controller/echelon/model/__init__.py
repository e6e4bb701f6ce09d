"""The documents that people write: jobs, fabrics, quantities, and the errors in them.

In come files and mappings. Out come jobs as iteration graphs, and fabrics with their paths;
`extras` says what comes with the package or beside it. Begin with `jobs` and `fabric`.
"""
