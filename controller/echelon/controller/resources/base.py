"""The base of all documents of the API."""

from pydantic import BaseModel, ConfigDict


class Resource(BaseModel):
    """A document of the API."""

    model_config = ConfigDict(
        frozen=True,
        use_attribute_docstrings=True,
    )
