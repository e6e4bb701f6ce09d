"""softswitch: an embedded P4Runtime switch that runs what p4c emits for v1model."""
