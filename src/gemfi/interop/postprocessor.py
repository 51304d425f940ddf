"""A trained model as a post-processor in the manner of OpenOOD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.scores import score_of


class Postprocessor:
    """Predictions and confidences of batches; a high confidence is more ID, as OpenOOD has it.

    The network that OpenOOD passes is the gemfi model itself, `evaluator(net=model,
    postprocessor=Postprocessor())`. Batches are mappings with `data` and `label`.

    Args:
        config: of OpenOOD; nothing of it is read.
        score: a name in `SCORES`; None for the method's epistemic score.
    """

    APS_mode = False  # no hyper-parameter is searched for
    hyperparam_search_done = True

    def __init__(self, config: object = None, score: str | None = None) -> None:
        self.config, self.score = config, score

    def setup(
        self, net: object, id_loader_dict: object = None, ood_loader_dict: object = None
    ) -> None:
        """Nothing but a look at the network: it was trained with its statistics."""
        del id_loader_dict, ood_loader_dict
        _model(net)

    def postprocess(self, net: object, data: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted classes (B,) and confidences (B,) of inputs."""
        model = _model(net)
        belief = model.predict(data)
        name = self.score or model.head.named_scores["epistemic"]
        return belief.labels(), -score_of(belief, name)

    def inference(
        self, net: object, data_loader: Iterable[Mapping[str, Any]], progress: bool = True
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Predictions, confidences and labels of everything that a loader holds."""
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for batch in tqdm(data_loader, disable=not progress, leave=False):
            predicted, confidence = self.postprocess(net, batch["data"])
            found.append((predicted.cpu(), confidence.cpu(), torch.as_tensor(batch["label"]).cpu()))
        if not found:
            raise InputError("the loader holds no batch")
        columns = [torch.cat(each).numpy() for each in zip(*found, strict=True)]
        return columns[0].astype(np.int64), columns[1], columns[2].astype(np.int64)


def _model(net: object) -> Model:
    inner = getattr(net, "module", net)  # of DataParallel
    if not isinstance(inner, Model):
        raise InputError(
            f"the network must be a trained gemfi Model, got {type(net).__name__}: attach one with "
            "gemfi.attach"
        )
    return inner
