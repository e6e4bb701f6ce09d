"""The way from a plan to switches that carry it, and their reports.

In comes a plan. `lowering` turns it into an intent for each switch, `southbound` brings switches to
their intents, and `telemetry` reads their digests. `targets` know what differs between kinds of
switch. Begin with `lowering`.
"""
