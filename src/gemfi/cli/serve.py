"""`gemfi serve`: a trained model behind HTTP, with a page to try it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import tyro

from gemfi._config import check_int
from gemfi._files import require_module
from gemfi.bundle import Bundle, bundled, fit_policy, open_model
from gemfi.cli import options
from gemfi.decisions import Goal, Policy
from gemfi.errors import InputError
from gemfi.serve.settings import Settings

if TYPE_CHECKING:
    from gemfi.serve.running import Tls

TOKEN: Final = "GEMFI_TOKEN"  # noqa: S105 - the name of a variable
_Model = tyro.conf.arg(metavar="MODEL", help_behavior_hint="")
_NEEDED: Final = ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "PIL.Image")


def serve(
    model: Annotated[str | None, tyro.conf.Positional, _Model] = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    policy: options.Goal = None,
    backbone: options.Backbone = None,
    token_file: options.File = None,
    tls_cert: options.File = None,
    tls_key: options.File = None,
    workers: int = 1,
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
        host: address to listen at; this machine alone by default, 0.0.0.0 for every network, which
            needs a token, or --without-token.
        port: to listen at; 0 for any that is free.
        policy: what to decide by, such as false_alarm=0.05,risk=0.02, in place of the policy of
            the bundle.
        backbone: where the network of a bundle is whose backbone is of your own, such as mynet:Net.
        token_file: a file with a token, which /v1 and /metrics then ask for; so does the variable
            GEMFI_TOKEN.
        tls_cert: a file with a certificate (PEM), to speak HTTPS; with --tls-key.
        tls_key: a file with its private key.
        workers: processes that answer; each has a copy of the model.
        settings: limits, times, the monitor, and the names of the server.
        without_token: let everybody ask who can reach the server.
        demo: serve mnist-gem-fi, to draw a digit on the page.
    """
    for name in _NEEDED:
        require_module(name, "the server")
    from gemfi.serve import running  # noqa: PLC0415 - optional
    from gemfi.serve.app import create_app  # noqa: PLC0415 - optional
    from gemfi.serve.logs import log_to_stderr  # noqa: PLC0415 - optional

    check_int("workers", workers, 1)
    settings = replace(settings, host=host, token=read_token(token_file))
    if without_token and settings.token is not None:
        raise InputError("there is a token: leave it or --without-token out")
    tls = _tls(tls_cert, tls_key)
    hangup = running.Hangup()
    source = ModelSource(model, backbone, None if policy is None else Goal.parse(policy), demo)
    bundle, decides = source()
    app = create_app(bundle, settings, decides, source)
    beyond = without_token or settings.token is not None
    listening = running.listen(host, port, beyond=beyond)
    log_to_stderr()
    url = running.address(listening, tls)
    print(_greeting(bundle, url, settings, without_token=without_token), flush=True)
    if workers == 1:
        running.run(app, listening, tls, hangup)
    else:
        del app, bundle, decides  # each worker has its own
        sys.exit(running.run_workers(running.Job(source, settings, tls, workers), listening))


@dataclass(frozen=True)
class ModelSource:
    """Where the model is read, at the start and whenever the server is told to reload.

    Attributes:
        model: a bundle, the folder of a run, or the name of one of the package.
        backbone: the network of a bundle whose backbone is of one's own.
        goal: what to decide by; None for the bundle's own policy.
        demo: whether to serve the model of the package.
    """

    model: str | None
    backbone: str | None
    goal: Goal | None
    demo: bool

    def __call__(self) -> tuple[Bundle, Policy | None]:
        """The model and its policy."""
        bundle = _opened(self.model, self.backbone, demo=self.demo)
        return bundle, bundle.policy if self.goal is None else fit_policy(bundle, self.goal)


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


def _tls(cert: str | None, key: str | None) -> Tls | None:
    from gemfi.serve.running import Tls  # noqa: PLC0415 - optional

    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise InputError("TLS needs both: --tls-cert and --tls-key")
    return Tls(cert, key)


def _opened(model: str | None, backbone: str | None, *, demo: bool) -> Bundle:
    if demo and model is not None:
        raise InputError(f"--demo serves a model of its own: leave {model} or --demo out")
    if not demo and model is None:
        raise InputError("give a MODEL to serve, or --demo")
    return bundled() if model is None else open_model(model, backbone)


def _greeting(bundle: Bundle, url: str, settings: Settings, *, without_token: bool) -> str:
    what = f"gemfi serves {bundle.name} ({bundle.info.method}) at {url}"
    if settings.token is not None:
        what += "; /v1 and /metrics ask for the token"
    elif without_token:
        what += "; without a token, so that whoever reaches it may ask"
    return f"{what}. Open it in a browser, or ask {url}/v1/predict. Ctrl-C stops."
