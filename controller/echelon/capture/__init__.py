"""From what the ranks of a training job did to execution traces and a summary (docs/capture.md)."""
