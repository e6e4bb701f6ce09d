"""Models by name, and the jobs that train them.

`catalogue` has the models, of the sizes in `models.yaml`, as `layers` of `transformers`, `decoders`,
`convolutions` and `recommenders`; `gpus` has the GPUs. A `training` says how they share the work,
`checks` which layouts go together, and `placement` how they lie on hosts. `times` says how long passes
take (`computing`, `launches`, `collectives`), `iteration` how long all of them do, `traffic` what is
sent, and `job_file` writes it down, with `predictions`. `options` begins with what a user
says, `degrees` with its layout.
"""
