"""`gemfi serve`: a trained model behind HTTP, with a page to try it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import tyro

from gemfi.bundle import Bundle, bundled, fit_policy, open_model
from gemfi.cli import options
from gemfi.decisions import Goal
from gemfi.errors import InputError
from gemfi.extras import require_module
from gemfi.serve.settings import Settings

TOKEN: Final = "GEMFI_TOKEN"  # noqa: S105 - the name of a variable
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_Model = tyro.conf.arg(metavar="MODEL", help_behavior_hint="")
_NEEDED: Final = ("fastapi", "uvicorn", "python_multipart", "PIL.Image")


def serve(
    model: Annotated[str | None, tyro.conf.Positional, _Model] = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    policy: options.Goal = None,
    backbone: options.Backbone = None,
    token_file: options.File = None,
    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings(),  # noqa: B008
    *,
    demo: bool = False,
) -> None:
    """Serve a trained model over HTTP, with a page to try it.

    POST /v1/predict answers, GET / is the page, /v1/model tells what is served, /metrics how it
    goes, /openapi.json how to ask. Requests that come together share a pass of the model. SIGTERM
    and Ctrl-C finish what was accepted. Each request is a line of JSON on standard error. Needs
    the extra: pip install '.[serve]' in the clone.

    Args:
        model: a bundle (.safetensors), the folder of a run, or mnist-gem-fi, which comes with the
            package.
        host: address to listen at; this machine alone by default, 0.0.0.0 for every network.
        port: to listen at; 0 for any that is free.
        policy: what to decide by, such as false_alarm=0.05,risk=0.02, in place of the policy of
            the bundle.
        backbone: where the network of a bundle is whose backbone is of your own, such as mynet:Net.
        token_file: a file with a token, which /v1 and /metrics then ask for; so does the variable
            GEMFI_TOKEN.
        settings: limits, times and the monitor.
        demo: serve mnist-gem-fi, to draw a digit on the page.
    """
    for name in _NEEDED:
        require_module(name, "the server")
    from gemfi.serve.app import create_app  # noqa: PLC0415 - optional
    from gemfi.serve.logs import log_to_stderr  # noqa: PLC0415 - optional
    from gemfi.serve.running import address, listen, run  # noqa: PLC0415 - optional

    settings = replace(settings, token=read_token(token_file))
    goal = None if policy is None else Goal.parse(policy)
    bundle = _opened(model, backbone, demo=demo)
    app = create_app(bundle, settings, None if goal is None else fit_policy(bundle, goal))
    listening = listen(host, port)
    log_to_stderr()
    is_local = host in _LOCAL
    print(_greeting(bundle, address(listening), settings, is_local=is_local), flush=True)
    run(app, listening)


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


def _opened(model: str | None, backbone: str | None, *, demo: bool) -> Bundle:
    if demo and model is not None:
        raise InputError(f"--demo serves a model of its own: leave {model} or --demo out")
    if not demo and model is None:
        raise InputError("give a MODEL to serve, or --demo")
    return bundled() if model is None else open_model(model, backbone)


def _greeting(bundle: Bundle, url: str, settings: Settings, *, is_local: bool) -> str:
    what = f"gemfi serves {bundle.name} ({bundle.info.method}) at {url}"
    if settings.token is not None:
        what += "; /v1 and /metrics ask for the token"
    elif not is_local:
        what += "; without a token, so that whoever reaches it may ask"
    return f"{what}. Open it in a browser, or ask {url}/v1/predict. Ctrl-C stops."
