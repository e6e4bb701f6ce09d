"""The paradigms of training, a module each: section of the job file, graph and examples."""
