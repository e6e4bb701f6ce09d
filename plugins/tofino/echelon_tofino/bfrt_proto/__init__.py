"""The messages of BF Runtime, which softswitch serves and the controller speaks.

`bfruntime_pb2` is generated from `bfruntime.proto` by `make proto`; finsy brings
`google.rpc.Status`.
"""
