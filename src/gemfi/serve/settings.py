"""The options of a server: one record for code and command line."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field, fields
from typing import Annotated, Final

import tyro

from gemfi._config import check_int, check_number
from gemfi.errors import InputError

_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", re.ASCII)
_TOKEN: Final = re.compile(rb"[!-~]{8,}")
_File = Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True)
class Settings:
    """The options of a server; the defaults suit a small model on one machine.

    Attributes:
        host: address to listen at; this machine alone by default, 0.0.0.0 for every network, which
            needs a token, or --without-token.
        port: to listen at; 0 for any that is free.
        workers: processes that answer; each has a copy of the model.
        tls_cert: a file with a certificate (PEM), to speak HTTPS; with --tls-key.
        tls_key: a file with its private key, without a password.
        max_batch: inputs of one forward pass.
        max_wait: milliseconds that an input waits for others, at most. A request that comes alone
            does not wait.
        max_queue: inputs that may wait; more are refused with 429.
        max_inputs: inputs of one request.
        max_requests: requests that may be open at once; more are refused with 429.
        max_connections: connections that may be open at once, and fewer where the process may
            open fewer files; more are answered 503, or closed.
        max_bytes: of the body of a request; by default what `max_inputs` inputs of the model's
            shape can take, 16 MiB at most, and 16 MiB where images are taken.
        max_tokens: of a text.
        max_pixels: of an image, by its header, before it is unpacked.
        header_timeout: seconds in which the header of a request must have come.
        body_timeout: seconds in which a body must have come, and an answer must have been taken.
        answer_timeout: seconds in which the model must have answered.
        monitor_length: inputs after which the monitor begins anew; it keeps 8 bytes of each.
        monitor_false_alarm: probability with which the monitor may fire on a stream without drift.
        allow_hosts: names besides this machine's own under which browsers reach the server, such
            as model.example, without port.
        token: that /v1 and /metrics ask for.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    tls_cert: _File = None
    tls_key: _File = None
    max_batch: int = 64
    max_wait: float = 2.0
    max_queue: int = 1024
    max_inputs: int = 256
    max_requests: int = 512
    max_connections: int = 1024
    max_bytes: int | None = None
    max_tokens: int = 512
    max_pixels: int = 16_000_000
    header_timeout: float = 10.0
    body_timeout: float = 10.0
    answer_timeout: float = 30.0
    monitor_length: int = 1_000_000
    monitor_false_alarm: float = 0.01
    allow_hosts: tuple[str, ...] = ()
    token: Annotated[bytes | None, tyro.conf.Suppress] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if option.type in {"int", "int | None"} and value is not None:
                check_int(option.name, value, 0 if option.name == "port" else 1)
            elif option.name.endswith("_timeout"):
                check_number(option.name, value, above=0)
        check_number("max_wait", self.max_wait, least=0)
        check_number("monitor_false_alarm", self.monitor_false_alarm, above=0, below=1)
        if self.max_queue < self.max_inputs:
            raise InputError(
                f"max_queue={self.max_queue} is less than max_inputs={self.max_inputs}: a request "
                "of that many inputs could never be accepted"
            )
        for name in self.allow_hosts:
            if not _HOST.fullmatch(name):
                raise InputError(
                    f"allow_hosts takes names without scheme and port, such as model.example, "
                    f"got {name!r}"
                )
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise InputError("a token has 8 or more printable characters of ASCII, and no spaces")
        self._check_tls()

    def _check_tls(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("TLS needs both: --tls-cert and --tls-key")
        if self.tls_cert is None:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key, password="")  # never asks for one
        except OSError as error:  # ssl.SSLError is one
            raise InputError(
                f"cannot use the certificate {self.tls_cert} with the key {self.tls_key}: {error}"
            ) from error
