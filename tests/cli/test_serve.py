"""`gemfi serve`, up to the moment where it would listen; the process itself is in tests/serve."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from gemfi.cli import main
from gemfi.cli.serve import read_token
from gemfi.errors import InputError
from support.commands import Capture, refused

TOKEN = "GEMFI_TOKEN"  # noqa: S105 - the name of a variable


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a MODEL to serve, or --demo"),
        (["mnist-gem-fi", "--demo"], "leave mnist-gem-fi or --demo out"),
        (["nothing"], "no model nothing"),
        (["--demo", "--policy", "sense=1"], "unknown 'sense'"),
        (["--demo", "--policy", "youden"], "MNIST (train) is not here"),
        (["--demo", "--max-batch", "0"], "max_batch must be"),
        (["--demo", "--workers", "0"], "workers must be"),
        (["--demo", "--allow-hosts", "http://x"], "names without scheme and port"),
        (["--demo", "--tls-cert", "x"], "TLS needs both"),
        (["--demo", "--tls-cert", "x", "--tls-key", "y"], "cannot use the certificate x"),
        (["--demo", "--token-file", "nowhere"], "cannot read the token in nowhere"),
        (["--demo", "--port", "99999"], "cannot listen at 127.0.0.1, port 99999"),
        (["--demo", "--host", "999.1.1.1"], "cannot listen at 999.1.1.1"),
        (["--demo", "--host", "é" * 70], "cannot listen at é"),
    ],
)
def test_what_is_refused(
    arguments: list[str], words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMFI_DATA", "nowhere")
    assert words in refused(["serve", *arguments], capsys)


def test_a_port_that_is_taken(capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port}" in refused(["serve", "--demo", "--port", port], capsys)


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "python_multipart"])
def test_a_missing_package(module: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    line = refused(["serve", "--demo"], capsys)
    assert module.replace("_", "-") in line
    assert "pip install '.[serve]' in the clone" in line


def test_the_token_is_no_option(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    assert "--max-batch" in text
    assert "--token-file" in text
    assert "--token " not in text
    assert "--settings" not in text


def test_the_command_line_does_not_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess  # noqa: PLC0415

    code = "import gemfi.cli, sys; print({'fastapi', 'uvicorn', 'starlette'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN, "from-the-variable\n")
    assert read_token(None) == b"from-the-variable"
    file = tmp_path / "token"
    file.write_bytes(b"  from-the-file\n")
    assert read_token(str(file)) == b"from-the-file"
    monkeypatch.setenv(TOKEN, "bytes-of-no-text\udcff")
    assert read_token(None) == b"bytes-of-no-text\xff"  # which the settings refuse in words
    monkeypatch.setenv(TOKEN, "")
    with pytest.raises(InputError, match="GEMFI_TOKEN is empty"):
        read_token(None)


def test_options_reach_the_app(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from gemfi.serve import logs, running  # noqa: PLC0415

    seen: dict[str, Any] = {}
    monkeypatch.setattr(logs, "log_to_stderr", lambda: None)
    monkeypatch.setattr(
        running, "run", lambda app, listening, *_: seen.update(app=app, at=listening)
    )
    arguments = "serve --demo --port 0 --policy false_alarm=0.2 --max-batch 7 --max-wait 0.5"
    assert main([*arguments.split(), "--max-bytes", "999"]) == 0
    service = seen["app"].state.service
    assert (service.settings.max_batch, service.settings.max_bytes) == (7, 999)
    assert service.batcher.max_wait == 0.0005
    assert service.predictor.policy.level == 0.2
    port = seen["at"].getsockname()[1]
    seen["at"].close()
    assert f"serves mnist-gem-fi (gem-fi) at http://127.0.0.1:{port}." in capsys.readouterr().out


def test_a_network_without_a_token_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from gemfi.serve import logs, running  # noqa: PLC0415

    monkeypatch.setattr(logs, "log_to_stderr", lambda: None)
    monkeypatch.setattr(running, "run", lambda _, listening, *_rest: listening.close())
    beyond = ["serve", "--demo", "--port", "0", "--host", "0.0.0.0"]  # noqa: S104
    line = refused(beyond, capsys)
    assert "--token-file" in line
    assert "--without-token" in line
    assert main([*beyond, "--without-token"]) == 0
    assert "without a token" in capsys.readouterr().out
    monkeypatch.setenv(TOKEN, "a-token-of-the-tests")
    assert main(beyond) == 0
    assert "ask for the token" in capsys.readouterr().out
    assert "leave it or --without-token out" in refused([*beyond, "--without-token"], capsys)
