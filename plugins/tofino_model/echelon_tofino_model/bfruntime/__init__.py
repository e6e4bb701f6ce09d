"""BF Runtime over gRPC: a program's tables from its `bf-rt.json`, and the fixed tables of a
Tofino.
"""
