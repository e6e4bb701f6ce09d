"""Models by name, and the jobs that train them.

`options` turns what a user says into a job file; begin reading there. `catalogue` has the models,
of the sizes in `models.yaml`, as `layers` of `transformers`, `decoders`, `convolutions` and
`recommenders`; `gpus` has the GPUs. A `training` says how they share the work (`degrees`), `checks`
which layouts go together, and `placement` how they lie on hosts. `times` says how long passes take
(`computing`, `launches`, `collectives`), `iteration` how long all of them do, and `traffic` what is
sent. `job_file` writes it down, with `predictions`.
"""
