"""The service over HTTP: JSON in and out, one shape of error, bearer tokens, TLS.

``app.create_app`` makes the application and ``server.ApiServer`` listens. Nothing here decides
anything about jobs: every request becomes one question to the machine. Each noun has one module,
with its documents, how they are made of the state, and the endpoints. Times are seconds since the
epoch (UTC), durations seconds, sizes bytes, rates bits per second. The client has the documents
from there, so the modules import FastAPI only to make the endpoints (`routes`).
"""
