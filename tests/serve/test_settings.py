from __future__ import annotations

from typing import Any

import pytest

from gemfi.errors import InputError
from gemfi.serve.settings import Settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_batch": 0}, "max_batch must be an integer of at least 1"),
        ({"max_queue": 1.5}, "max_queue must be an integer"),
        ({"max_queue": 10}, "could never be accepted"),
        ({"max_wait": -1}, "max_wait must be at least 0"),
        ({"body_timeout": 0}, "body_timeout must be above 0"),
        ({"answer_timeout": float("inf")}, "answer_timeout must be"),
        ({"monitor_false_alarm": 1}, "monitor_false_alarm must be"),
        ({"token": b""}, "8 or more"),
        ({"token": b"short"}, "8 or more"),
        ({"tls_cert": "x"}, "TLS needs both"),
        ({"port": -1}, "port must be"),
        ({"token": b"has a space in it"}, "no spaces"),
        ({"token": "straße-straße".encode()}, "ASCII"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Settings(**given)


def test_a_token_is_not_shown() -> None:
    assert repr(Settings(token=b"swordfish-swordfish")) == repr(Settings())
