"""The documents of the API: what the service answers and clients read, and the bodies of requests.

They are data alone. `echelon.controller.service.api` makes them of the machine's state;
`echelon.controller.client` reads them. Begin with `jobs`.
"""
