"""The server: a trained model behind HTTP, with a page to try it.

A connection is counted and timed by `connections.py`. A request passes `middleware.py` (hosts,
sites, token, headers, log) and comes to its route in `app.py`. `bodies.py` makes inputs of its body
as `formats.py` says that the model takes them. `service.py` hands them to `batching.py`, which
joins concurrent requests to one pass of the `predictor.py`, which asks the model and its monitor.
`schemas.py` are the answers, `problems.py` what is wrong with a request, `metrics.py` the text of
Prometheus and `logs.py` the log. `settings.py` says what may be chosen, and `running.py` runs it in
one process or several. FastAPI, uvicorn and prometheus-client are the extra `serve`.
"""
