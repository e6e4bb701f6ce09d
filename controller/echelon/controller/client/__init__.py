"""The Python clients of the service: `Client` blocks, `AsyncClient` is awaited.

```python
with Client("https://ctl1:8080", ca="ca.pem") as client:  # token: the file that ECHELON_TOKEN_FILE names
    job = client.register_job("bert.yaml")
    client.job(job.name, wait_s=10)

async with AsyncClient("https://ctl1:8080", ca="ca.pem") as client:
    job = await client.register_job("bert.yaml")
    await client.job(job.name, wait_s=10)
```

In come a method's arguments, out go the documents of `echelon.controller.resources`. A call is a
conversation with the controllers that does no I/O (`calls`, `conversation`), and the two clients
only carry it out (`blocking`, `asynchronous`). Begin with `conversation`.
"""

from echelon.controller.client.asynchronous import AsyncClient
from echelon.controller.client.blocking import Client
from echelon.controller.client.credentials import TOKEN_FILE_VARIABLE, read_token
from echelon.controller.client.endpoints import (
    DEFAULT_URL,
    URL_VARIABLE,
    ServiceEndpoint,
    parse_endpoint,
    parse_endpoints,
)
from echelon.controller.client.errors import ClientError

__all__ = [
    "DEFAULT_URL",
    "TOKEN_FILE_VARIABLE",
    "URL_VARIABLE",
    "AsyncClient",
    "Client",
    "ClientError",
    "ServiceEndpoint",
    "parse_endpoint",
    "parse_endpoints",
    "read_token",
]
