"""Attacks of strangers on a running service and on its switches, beside an operator.

`target` is what an attacker knows and its client, `programs`, `streams`, `messages` and `clients` the attacks,
`victim` the service that is attacked and its operator, `command` the table.
"""
