"""The basis of P4Runtime and gNMI: statuses, and gRPC handlers that never fail to decode."""
