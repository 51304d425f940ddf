"""What may be chosen of a server: one record for code and command line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Annotated, Final

import tyro

from gemfi._config import check_int, check_number
from gemfi.errors import InputError

_LEAST_TOKEN: Final = 8
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """What may be chosen of a server; the defaults suit a small model on one machine.

    Attributes:
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
        host: address that it listens at. 0.0.0.0 and :: stand for every address.
        token: that /v1 and /metrics ask for; None for none.
    """

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
    host: Annotated[str, tyro.conf.Suppress] = "127.0.0.1"
    token: Annotated[bytes | None, tyro.conf.Suppress] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if option.type in {"int", "int | None"} and value is not None:
                check_int(option.name, value, 1)
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
        token = self.token
        if token is not None and (
            len(token) < _LEAST_TOKEN or not all(0x21 <= byte <= 0x7E for byte in token)
        ):
            raise InputError(
                f"a token has {_LEAST_TOKEN} or more letters, digits or signs of ASCII, and no "
                "spaces"
            )
