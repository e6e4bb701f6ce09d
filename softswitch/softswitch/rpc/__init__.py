"""The basis of P4Runtime and gNMI: statuses of operations, and gRPC handlers that never fail to
decode.
"""
