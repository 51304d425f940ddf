"""The server: a trained model behind HTTP, with a page to try it.

A connection is counted and timed by `connections.py`. A request passes `edge.py` (hosts and sites
by `origins.py`, token, headers, log) and comes to `routes.py`. `bodies.py` reads its body;
`arrays.py` and `images.py` make inputs of it, as `formats.py` says that the model takes them.
`service.py` hands them to `batching.py`, which joins concurrent requests to one pass of the
`predictor.py` of the model that is `loaded.py`; that asks the model and lets `watch.py`, the
monitor, see it. `answers.py` writes what the model thinks, `about.py` what it is, `problems.py`
what is wrong with a request. `gauges.py` counts, `metrics.py` is the text of Prometheus, `logs.py`
that of the log; `schemas.py` and `openapi.py` describe the answers. `settings.py` says what may be
chosen, `app.py` puts it all together, `running.py` runs it until it is told to stop, `workers.py`
in several processes, whose metrics meet on `board.py`, and `pages.py` serves `page/`. FastAPI,
uvicorn and the parser of forms are the extra `serve`.
"""
