"""The ways to choose the path of a connection among those that a fabric has: one module each.

A fabric names one by the key `paths`. It is found by the entry-point group `echelon.paths`: an
`echelon.model.fabric.routing.PathChooser` that is made without arguments, or raises `ValueError` to
say why none can follow it. `kept`, the default, is `echelon.model.fabric.routing.Router`.
"""
