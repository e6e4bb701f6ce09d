"""The Python client of the service.

```python
with Client("https://ctl1:8080", ca="ca.pem") as client:   # token: the file that ECHELON_TOKEN_FILE names
    job = client.register_job("bert.yaml")
    client.job(job.name, wait_s=10)
```
"""

from echelon.client.client import DEFAULT_URL, Client, read_token
from echelon.client.errors import ClientError

__all__ = ["DEFAULT_URL", "Client", "ClientError", "read_token"]
