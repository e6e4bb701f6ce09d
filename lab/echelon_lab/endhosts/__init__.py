"""Emulated end hosts: transports, TCP and training workers.

They have no I/O and no clock of their own.
"""
