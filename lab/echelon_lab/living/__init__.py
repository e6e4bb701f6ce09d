"""The emulated hosts of a laboratory, which do what the service's jobs say for as long as it lasts.

In comes a scenario, scaled to what the machine carries, and a socket for each link of a host. Out
go real frames. Begin reading at `workers`.
"""
