"""Pipeline parallelism: the schedules by which stages take micro-batches, each a module of its published name."""
