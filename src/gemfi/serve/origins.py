"""Who a request says that it is for, and from which page it comes.

A browser sends requests wherever a page tells it to, also to this machine. Two headers that pages
cannot forge give it away: `Host`, the name under which the server was reached, and `Origin` or
`Sec-Fetch-Site`, the page that asks. A name that is not ours is how DNS rebinding looks: the page's
own name, made to point here. Programs that are no browsers need not send the last two.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from starlette.datastructures import Headers

from gemfi.serve.problems import ProblemError
from gemfi.serve.settings import Settings

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened at
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?", re.ASCII)
_OWN_SITES: Final = frozenset({"same-origin", "none"})  # the page, or the reader's own hand
_PORTS: Final = {"http": 80, "https": 443}


class Origins:
    """The hosts that are answered, and the pages.

    Args:
        settings: the address that the server listens at, and what else it may be called.
    """

    def __init__(self, settings: Settings) -> None:
        self._named = frozenset(name.lower() for name in settings.allow_hosts)
        self._hosts = LOCAL | self._named | {settings.host.lower()}
        self._any_address = bool(self._hosts & _EVERY)

    def check(self, headers: Headers, *, guarded: bool) -> None:
        """Refuse a request that is for another host, or from another site.

        Args:
            headers: of the request.
            guarded: whether another site may not even ask without reading the answer.
        """
        host, port = _split(headers.get("host", ""))
        if not self._is_ours(host):
            raise ProblemError(
                421,
                "wrong_host",
                f"this server is not called {host[:80]!r}; its owner can add the name with "
                "--allow-hosts",
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        foreign = origin is not None and not self._is_own_page(origin, host, port)
        if foreign or (guarded and site not in _OWN_SITES):
            raise ProblemError(403, "cross_site", "requests of other sites are not answered")

    def _is_ours(self, host: str) -> bool:
        return host in self._hosts or (self._any_address and _is_address(host))

    def _is_own_page(self, origin: str, host: str, port: int | None) -> bool:
        """Whether a page was served here, or by a proxy under a name that was allowed."""
        scheme, _, rest = origin.partition("://")
        page_host, page_port = _split(rest)
        if scheme not in _PORTS or not page_host:
            return False
        usual = _PORTS[scheme]
        return page_host in self._named or (page_host, page_port or usual) == (host, port or usual)


def _split(text: str) -> tuple[str, int | None]:
    """Name and port; an empty name for what is none."""
    found = _HOST.fullmatch(text)
    if found is None:
        return "", None
    name, port = found.groups()
    return name.strip("[]").rstrip(".").lower(), None if port is None else int(port)


def _is_address(host: str) -> bool:
    """Whether a host is an address, which no name service can be made to point elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
