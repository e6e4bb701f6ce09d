"""Topologies that other tools have written, as fabric files.

A kind is one module with a class derived from `echelon_importers.topologies.topology.Topology`, in
the entry-point group `echelon.topologies`, and a `ForeignKind` in `echelon.foreign`, by which its
files are recognised. A kind parses bytes into a `Network`, which is as the file has it;
`echelon_importers.topologies.conversion` makes a fabric of it. Start there.
"""
