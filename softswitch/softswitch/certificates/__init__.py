"""Certificates for switches and their controllers: an authority, and what it signs.

`issuing` makes keys and certificates, `folders` keeps them in a folder for each switch and each
client. They are for whoever starts switches; a running switch needs nothing of this package, and
this module imports none of it.
"""

from __future__ import annotations

__all__ = ["AUTHORITY_DAYS", "AUTHORITY_FOLDER", "DAYS"]

AUTHORITY_FOLDER = "authority"

AUTHORITY_DAYS = 3650
"""The days for which an authority is valid. A new one has to be taken to every machine."""

DAYS = 398
"""The default of the days for which a certificate is valid: what browsers allow at most.

It is a year and a month, so that whoever renews once a year is in time.
"""
