"""The paradigms of training, a module each: a section of the job file, its iteration graph, its
examples.
"""
