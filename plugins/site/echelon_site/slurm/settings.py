"""The file that says where the service is, for the hooks, which Slurm gives no environment.

```yaml
url: https://ctl1:8080                  # default http://127.0.0.1:8080
token_file: /etc/echelon/slurm.token    # an operator's on the controller, a reader's on nodes
ca: /etc/echelon/ca.pem
certificate: /etc/echelon/slurm.pem     # with its key
hosts: {gpu-001: h1}                    # Slurm's names of nodes that the fabric calls otherwise
gpus_per_host: 8                        # for models by name
wait: 10 s                              # the longest that a job waits for the service and its plan
strict: false                           # whether a job that is not registered is requeued
```
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import Field

from echelon.controller.client import DEFAULT_URL, Client, read_token
from echelon.model.documents import (
    Duration,
    Name,
    Section,
    UpTo1000,
    parse_document,
    read_document,
)

DEFAULT_PATH = Path("/etc/echelon/slurm.yaml")


class Settings(Section):
    """What the administrator decides for all jobs of Slurm."""

    url: str = DEFAULT_URL
    token_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    hosts: dict[str, Name] = Field(default_factory=dict)
    gpus_per_host: UpTo1000 = 8
    wait: Annotated[Duration, Field(le=60)] = Fraction(10)
    """60 s is the longest that the service lets a request wait."""
    strict: bool = False

    def host(self, node: str) -> str:
        """Return the fabric's name of a node of Slurm."""
        return self.hosts.get(node, node)

    def client(self, longest_s: float | None = None) -> Client:
        """Return a client that repeats a call for `wait`, or gives up after `longest_s` seconds.

        Raises `ClientError` for files that cannot be used.
        """
        token = None
        if self.token_file is not None:
            token = read_token(self.token_file)
        retry_s = float(self.wait)
        timeout_s = 30.0
        if longest_s is not None:
            retry_s = 0.0
            timeout_s = longest_s
        return Client(self.url, token, self.ca, self.certificate, timeout_s, retry_s)


def load_settings(path: Path) -> Settings:
    """Return the settings in a file. Raises `DocumentError`."""
    return parse_document(Settings, read_document(path), str(path))
