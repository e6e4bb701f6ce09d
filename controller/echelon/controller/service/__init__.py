"""The controller as a service: jobs in by REST, switches kept at what the policy wants, nothing
acknowledged lost.

In come requests, and what switches and agents say. Out come answers, metrics, logs and a store on
disk. Begin with `daemon`, then `loop`; `api` has one module for each resource.
"""
