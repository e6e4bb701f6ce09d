"""BF Runtime over gRPC, for a program's tables and the fixed tables of a Tofino."""
