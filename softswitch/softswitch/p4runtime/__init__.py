"""The P4Runtime service of the switch: `device.Device` decides, `server.Server` speaks gRPC."""
