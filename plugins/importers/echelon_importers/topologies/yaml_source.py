"""YAML in files of other tools."""

from __future__ import annotations

import yaml

from echelon_importers.importer import Source


def load_yaml(source: Source) -> object:
    """Return what a file of YAML holds. Raises `DocumentError`."""
    try:
        return yaml.load(source.text(), yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        first_line = str(error).splitlines()[0]
        reason = f"is not YAML: {first_line} (correct it)"
        raise source.refusal(reason, code="bad-syntax") from None
