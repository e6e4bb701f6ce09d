"""The controller as a service: jobs come in by REST, switches are kept at what the policy wants.

In come requests, and what switches and agents say. Out come answers, metrics, logs and a store on
disk, which loses nothing that was acknowledged. Begin with `daemon`, then `loop`; `api` has one
module for each resource.
"""
