"""Runs of a scenario on real hosts.

Hosts are namespaces or Mininet, sockets are real, switches are processes, and so is the daemon.
"""
