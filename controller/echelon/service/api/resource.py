"""What the documents of the API have in common: the service's state. Times are seconds since the epoch (UTC), durations
seconds, sizes bytes, rates bits per second.

The module of each noun has its documents, how they are made of the state, and the endpoints. The client has the
documents from there, so the modules import FastAPI only to make the endpoints (`routes`).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Resource(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)
