"""The fabric: hosts, switches, links and the paths through them.

In comes a fabric file or a shape by name (`load`, `builders`). Out come a `Fabric` and the paths of
connections. Begin with `model`.
"""
