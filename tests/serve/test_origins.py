"""Which hosts are answered, and whose pages."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from gemfi.bundle import Bundle
from support.served import Open, error

ROW = {"input": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io",
        "192.168.1.5", "evil@localhost", "localhost@evil.example", "localhost:x", "[::1", "[evil]",
        "", " ", "localhost/", "127.1", "0.0.0.0",  # noqa: S104
    ],
)  # fmt: skip
def test_other_hosts(row_client: TestClient, host: str) -> None:
    for path in ("/", "/healthz", "/v1/model", "/docs"):
        message, _ = error(row_client.get(path, headers={"Host": host}), 421, "wrong_host")
        assert "--allow-hosts" in message


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:1", "[::1]", "[::1]:8080"]
)
def test_own_hosts(row_client: TestClient, host: str) -> None:
    assert row_client.get("/healthz", headers={"Host": host}).status_code == 200


def test_hosts_that_are_allowed(rows: Bundle, open_client: Open) -> None:
    client = open_client(rows, allow_hosts=("Model.Example",), host="10.1.2.3")
    for host in ("model.example", "MODEL.example:8443", "10.1.2.3:80", "localhost"):
        assert client.get("/healthz", headers={"Host": host}).status_code == 200
    for host in ("other.example", "x.model.example", "10.1.2.4"):
        error(client.get("/healthz", headers={"Host": host}), 421, "wrong_host")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_every_address_but_no_name(rows: Bundle, open_client: Open, host: str) -> None:
    """No name service can point an address elsewhere."""
    client = open_client(rows, host=host)
    for good in ("10.1.2.3:80", "[fe80::1]:8080", "localhost"):
        assert client.get("/healthz", headers={"Host": good}).status_code == 200
    error(client.get("/healthz", headers={"Host": "evil.example"}), 421, "wrong_host")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost:3000"},
        {"Origin": "file://localhost"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    ],
)
def test_other_sites(row_client: TestClient, headers: dict[str, str]) -> None:
    for content in ("application/json", "text/plain"):
        sent = {"Content-Type": content, **headers}
        answer = row_client.post("/v1/predict", content=b'{"input": [1,2,3,4]}', headers=sent)
        error(answer, 403, "cross_site")
    error(row_client.get("/v1/model", headers=headers), 403, "cross_site")
    error(row_client.post("/v1/reload", headers=headers), 403, "cross_site")
    assert "gemfi_monitor_inputs 0.0\n" in row_client.get("/metrics").text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost:80", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://localhost:8080", "Host": "localhost:8080"},
        {"Origin": "https://[::1]:8443", "Host": "[::1]:8443"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_own_pages_and_programs(row_client: TestClient, headers: dict[str, str]) -> None:
    assert row_client.post("/v1/predict", json=ROW, headers=headers).status_code == 200


def test_a_proxy_under_a_name_that_is_allowed(rows: Bundle, open_client: Open) -> None:
    """It may answer at another port, and need not pass the name on."""
    client = open_client(rows, allow_hosts=("model.example",))
    for host in ("model.example", "127.0.0.1:8080"):
        headers = {"Host": host, "Origin": "https://model.example:8443"}
        assert client.post("/v1/predict", json=ROW, headers=headers).status_code == 200
    headers = {"Host": "model.example", "Origin": "https://evil.example"}
    error(client.post("/v1/predict", json=ROW, headers=headers), 403, "cross_site")


def test_a_link_from_elsewhere_opens_the_page(row_client: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for path in ("/", "/docs", "/healthz"):
        assert row_client.get(path, headers=headers).status_code == 200
