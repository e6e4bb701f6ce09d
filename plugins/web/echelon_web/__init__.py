"""The web page: its files, how they are served, and what it computes of flows.

The service serves the page with what it sees live (`echelon.controller.service.api`), and `echelon
view` with the results of a finished run (`echelon_web.viewer`). The files are plain HTML, CSS and
JavaScript modules; nothing builds them.
"""
