"""The server: a trained model behind HTTP, with a page to try it.

`settings.py` says what may be chosen, `batching.py` joins concurrent requests to one forward pass,
`bodies.py` and `decoding.py` read what is asked, `predictor.py` asks the model and watches the
stream, `answers.py` writes what it thinks, `metrics.py` and `logs.py` tell how it goes; `app.py`
puts them together and `running.py` runs the app until it is told to stop. FastAPI, uvicorn and the
parser of forms are the extra `serve`.
"""
