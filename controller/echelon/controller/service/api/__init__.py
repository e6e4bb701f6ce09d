"""The service over HTTP: JSON in and out, one shape of error, bearer tokens, TLS.

``app.create_app`` makes the application and ``server.ApiServer`` listens. Nothing here decides
anything about jobs: every request becomes one question to the machine. Each noun has one module,
with what makes its documents (`echelon.controller.resources`) of the state, and its endpoints
(`routes`). Times are seconds since the epoch (UTC), durations seconds, sizes bytes, rates bits per
second.
"""
