"""What P4Runtime and gNMI share: statuses of operations, and gRPC handlers that never fail to decode."""
