"""`gemfi serve`: a trained model behind HTTP, with a page to try it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import tyro

from gemfi._files import require_module
from gemfi.bundle import Bundle, bundled
from gemfi.cli import options
from gemfi.decisions import Goal, Policy
from gemfi.devices import place
from gemfi.errors import InputError
from gemfi.runs import fit_policy, open_model
from gemfi.serve.settings import Settings

TOKEN: Final = "GEMFI_TOKEN"  # noqa: S105 - the name of a variable
_Model = tyro.conf.arg(metavar="MODEL", help_behavior_hint="")
_NEEDED: Final = ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "PIL.Image")


def serve(
    model: Annotated[str | None, tyro.conf.Positional, _Model] = None,
    policy: options.Goal = None,
    backbone: options.Backbone = None,
    token_file: options.File = None,
    device: options.Device = "auto",
    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings(),  # noqa: B008
    *,
    without_token: bool = False,
    demo: bool = False,
) -> None:
    """Serve a trained model over HTTP, with a page to try it.

    POST /v1/predict answers, GET / is the page, /docs tells how to ask, /v1/model what is served,
    /metrics how it goes. Requests that come together share a pass of the model. SIGTERM and Ctrl-C
    finish what was accepted; SIGHUP, or POST /v1/reload with the token, reads the model anew. Each
    request is a line of JSON on standard error. Needs the extra: pip install '.[serve]' in
    the clone.

    Args:
        model: a bundle (.safetensors), the folder of a run, or mnist-gem-fi, which comes with the
            package.
        policy: what to decide by, such as false_alarm=0.05,risk=0.02, in place of the policy of
            the bundle.
        backbone: where the network of a bundle is whose backbone is of your own, such as mynet:Net.
        token_file: a file with a token, which /v1 and /metrics then ask for; so does the variable
            GEMFI_TOKEN.
        device: auto, cpu, cuda, cuda:N or mps.
        settings: address, limits, times, the monitor, and the names of the server.
        without_token: let everybody ask who can reach the server.
        demo: serve mnist-gem-fi, to draw a digit on the page.
    """
    for name in _NEEDED:
        require_module(name, "the server")
    from gemfi.serve import running  # noqa: PLC0415 - optional
    from gemfi.serve.app import create_app  # noqa: PLC0415 - optional
    from gemfi.serve.logs import log_to_stderr  # noqa: PLC0415 - optional

    settings = replace(settings, token=read_token(token_file))
    if without_token and settings.token is not None:
        raise InputError("there is a token: leave it or --without-token out")
    if demo and model is not None:
        raise InputError(f"--demo serves a model of its own: leave {model} or --demo out")
    if not demo and model is None:
        raise InputError("give a MODEL to serve, or --demo")
    hangups = running.note_signals("SIGHUP")
    goal = None if policy is None else Goal.parse(policy)
    source = partial(_open, model, backbone, goal, device)
    bundle, decides = source()
    app = create_app(bundle, settings, decides, source)
    beyond = without_token or settings.token is not None
    listening = running.listen(settings.host, settings.port, beyond=beyond)
    log_to_stderr()
    url = running.address(listening, "http" if settings.tls_cert is None else "https")
    who = "; without a token, so that whoever reaches it may ask" if without_token else ""
    if settings.token is not None:
        who = "; /v1 and /metrics ask for the token"
    print(
        f"gemfi serves {bundle.name} ({bundle.info.method}) at {url}{who}. Open it in a browser, "
        f"or ask {url}/v1/predict. Ctrl-C stops.",
        flush=True,
    )
    if settings.workers == 1:
        running.run(app, listening, hangups)
    else:
        del app, bundle, decides  # each worker has its own
        sys.exit(running.run_workers(source, settings, listening))


def _open(
    model: str | None, backbone: str | None, goal: Goal | None, device: str
) -> tuple[Bundle, Policy | None]:
    """The model, which is that of the package by default, and its policy."""
    bundle = bundled() if model is None else open_model(model, backbone)
    place(bundle.model, device)
    return bundle, bundle.policy if goal is None else fit_policy(bundle, goal)


def read_token(file: str | None) -> bytes | None:
    """The token of a file or of the environment; None for neither."""
    if file is None:
        text = os.environ.get(TOKEN)
        if text == "":
            raise InputError(f"{TOKEN} is empty: give it a token, or unset it")
        return None if text is None else text.strip().encode(errors="surrogateescape")
    try:
        return Path(file).read_bytes().strip()
    except OSError as error:
        raise InputError(f"cannot read the token in {file}: {error.strerror}") from error
