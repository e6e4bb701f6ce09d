"""Configurations of SONiC: the tables of `config_db.json` that are about queues.

`dialect` is what `echelon switch-config` calls, `tables` says what the tables hold, `interfaces`
reads the ports and queues of a given configuration.
"""
