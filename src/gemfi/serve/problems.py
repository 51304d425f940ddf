"""What can be wrong with a request, as an exception that knows its answer."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from gemfi._files import to_json


class ProblemError(Exception):
    """A request that is not answered, and why.

    Args:
        status: the HTTP code.
        code: one word for programs.
        message: a sentence for people; it tells nothing of the machine that serves.
        where: the place in the request, such as `inputs[3]`.
        headers: further headers.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        where: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.where = status, code, message, where
        self.headers = dict(headers or {})

    def body(self) -> str:
        """The JSON of the answer."""
        return to_json({"error": {"code": self.code, "message": self.message, "where": self.where}})

    def response(self) -> Response:
        """The answer."""
        return Response(self.body(), self.status, self.headers, media_type="application/json")


def malformed(message: str, where: str | None = None) -> ProblemError:
    """400: a body that cannot be read at all."""
    return ProblemError(400, "malformed", message, where)


def unusable(code: str, message: str, where: str | None = None) -> ProblemError:
    """422: a body that can be read, but not answered."""
    return ProblemError(422, code, message, where)


def too_large(message: str, where: str | None = None) -> ProblemError:
    """413: more than the limits allow."""
    return ProblemError(413, "too_large", message, where)
