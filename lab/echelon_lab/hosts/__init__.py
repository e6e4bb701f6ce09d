"""Runs of a scenario on real hosts: namespaces or Mininet, real sockets, switches as processes, the
real daemon.
"""
