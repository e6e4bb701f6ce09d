"""Jobs whose workers are PyTorch programs, started beside agents, which report to the run."""
