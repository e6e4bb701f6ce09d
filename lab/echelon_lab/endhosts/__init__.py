"""Emulated end hosts: transports, TCP and training workers, without I/O and without a clock of
their own.
"""
