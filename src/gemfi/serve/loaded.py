"""A model that is served, and everything that was made from it."""

from __future__ import annotations

from typing import Any

from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.serve.about import about
from gemfi.serve.predictor import Predictor
from gemfi.serve.settings import Settings


class Loaded:
    """A model that is served. Each request is answered by one of them, from first to last.

    Args:
        bundle: the model.
        policy: that decides; None for none.
        settings: of the server.
    """

    def __init__(self, bundle: Bundle, policy: Policy | None, settings: Settings) -> None:
        self.bundle, self.policy = bundle, policy
        self.predictor = Predictor(bundle, policy, settings)
        self.form = self.predictor.form
        self.max_bytes = settings.max_bytes or self.form.max_bytes(settings.max_inputs)
        self.about: dict[str, Any] = about(bundle, policy, self.form, self._limits(settings))

    def _limits(self, settings: Settings) -> dict[str, int]:
        return {
            "batch": settings.max_inputs,
            "bytes": self.max_bytes,
            "pixels": settings.max_pixels,
        }

    def follow(self, before: Loaded) -> None:
        """Count the streams of the monitor on from the model that was served before."""
        old, new = before.predictor.watch, self.predictor.watch
        if old is not None and new is not None:
            new.follow(old.state())
