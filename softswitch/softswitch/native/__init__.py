"""The switch in C: what a program compiles to, the traffic manager, and the data plane of real interfaces."""
