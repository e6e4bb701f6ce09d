"""Certificates for switches and their controllers: an authority, and what it signs.

`issuing` makes keys and certificates, `folders` keeps them in a folder for each switch and each
client. They are for whoever starts switches; a running switch needs nothing of this package.
"""
