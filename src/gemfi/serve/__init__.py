"""The server: a trained model behind HTTP, with a page to try it.

`connections.py` counts and times a connection. A request passes `middleware.py` (hosts, sites,
token, headers, log) and comes to its route in `app.py`; `bodies.py` makes inputs of its body as
`formats.py` says. `service.py` hands them to `batching.py`, which joins concurrent requests to one
pass of the model. `schemas.py` are the answers, `running.py` runs it in one process or several.
"""
