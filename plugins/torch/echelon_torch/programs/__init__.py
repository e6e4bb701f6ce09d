"""Jobs whose workers are programs that use PyTorch: they are started beside agents, and tell the
run what they do.
"""
