"""The module itself, in torch: what it gives, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gemfi import build_model
from gemfi.backbones import Tokens
from gemfi.decisions import Reference
from gemfi.errors import InputError
from gemfi.export import Deployed
from gemfi.export.deployed import PValues, folded
from gemfi.methods import METHODS
from gemfi.scores import SCORES
from gemfi.spectral import Spectral, SpectralLayer
from support.exports import mixed, row_model, row_policy


@pytest.mark.parametrize("method", METHODS)
def test_it_says_to_the_bit_what_model_and_policy_say(method: str) -> None:
    model = row_model(method)
    policy = row_policy(model)
    deployed, x = Deployed(model, policy), mixed(200)
    with torch.no_grad():
        found = deployed(x)
    belief, decisions = model.predict(x), policy(model.predict(x))
    assert list(found) == deployed.output_names
    assert torch.equal(found["probs"], belief.probs())
    assert found["label"].tolist() == decisions.label.tolist()
    assert found["decision"].tolist() == decisions.verdict.tolist()
    assert found["p_value"].tolist() == decisions.p_value.tolist()
    for name in deployed.scores:
        assert torch.equal(found[name], SCORES[name](belief)), name
    assert len(set(found["decision"].tolist())) > 1, "a test of one verdict tests little"


class TestOutputs:
    def test_only_those_that_the_method_has(self) -> None:
        names = Deployed(row_model("softmax")).output_names
        assert "evidence" not in names
        assert "energy" not in names
        assert names[-1] == "logit_energy"  # by which softmax tells the unknown
        assert "decision" not in names

    def test_of_gem(self) -> None:
        names = Deployed(row_model("gem-fi")).output_names
        assert names == [
            "probs", "label", "max_prob", "entropy", "expected_entropy", "disagreement",
            "mutual_information", "evidence", "energy", "unfamiliarity",
        ]  # fmt: skip

    def test_a_number_that_is_none_is_never_accepted(self) -> None:
        model = row_model("gem-fi")
        with torch.no_grad():
            found = Deployed(model, row_policy(model))(torch.full((1, 4), torch.nan))
        assert found["decision"].item() == 2
        (group,) = row_policy(model).reference.groups
        assert found["p_value"].item() == 1 / (len(group) + 1)

    def test_the_model_itself_stays_as_it_is(self) -> None:
        model = row_model("gem-fi").train()
        before = {name: each.clone() for name, each in model.state_dict().items()}
        Deployed(model)(mixed(4))
        assert model.training
        assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


class TestPValues:
    @pytest.mark.parametrize("groups", [1, 3])
    def test_as_the_reference_has_them(self, groups: int) -> None:
        generator = np.random.default_rng(0)
        scores = generator.integers(0, 40, 300) / 8  # with ties
        labels = generator.integers(0, 3, 300)
        labels[:3] = 0, 1, 2
        reference = (
            Reference.of(scores) if groups == 1 else Reference.of(scores, labels, num_classes=3)
        )
        asked = np.concatenate([scores[:100], generator.normal(2, 3, 100), [-np.inf, np.inf]])
        of = generator.integers(0, 3, len(asked))
        found = PValues(reference)(torch.from_numpy(asked), torch.from_numpy(of))
        assert found.tolist() == reference.p_values(asked, of).tolist()


class TestFolding:
    def test_the_weights_are_those_that_evaluation_uses(self) -> None:
        torch.manual_seed(3)
        model = build_model(
            "gem-fi", "convnet", 3, size=8, channels=4, spectral=Spectral("hard", 0.5)
        )
        plain = folded(model)
        layers = [each for each in model.modules() if isinstance(each, SpectralLayer)]
        for one, other in zip(
            layers, (m for m in plain.modules() if isinstance(m, SpectralLayer)), strict=True
        ):
            model.eval()
            assert torch.equal(one.normalised_weight(), other.weight)
            assert not hasattr(other, "sigma")
        x = torch.rand(5, 1, 8, 8)
        assert torch.equal(model.predict(x).log_probs(), plain.predict(x).log_probs())
        assert not torch.equal(layers[0].weight, layers[0].normalised_weight())


class TestRefusals:
    def test_a_method_that_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = row_model("softmax")
        info = replace(type(model.head).info, exportable=False)
        monkeypatch.setattr(type(model.head), "info", info)
        with pytest.raises(InputError, match="the method softmax cannot be exported"):
            Deployed(model)

    def test_a_model_that_was_never_trained(self) -> None:
        with pytest.raises(InputError, match=r"set model\.inputs"):
            Deployed(build_model("softmax", "mlp", 3, in_features=4))

    def test_texts(self) -> None:
        class Texts(nn.Module):
            num_features, tokens = 4, Tokens(9)

            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(9, 4)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                z: torch.Tensor = self.embedding(x).mean(dim=1)
                return z

        with pytest.raises(InputError, match="takes token ids"):
            Deployed(build_model("softmax", Texts(), 3))

    def test_a_policy_by_a_score_that_no_graph_holds(self) -> None:
        model = row_model("edl")
        with pytest.raises(InputError, match="decides by dissonance"):
            Deployed(model, row_policy(model, doubt="dissonance"))
