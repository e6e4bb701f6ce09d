"""Tofino: the target of Echelon by BF Runtime.

`target` is what the controller uses, and `bfrt_proto` has the messages. Begin with
`target/session.py`. `echelon_tofino_model` stands for the chip where there is none.
"""
