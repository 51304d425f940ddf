"""What detectors share: one pass, one rule for logits, roles, one sign, and their records."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gemfi import METHODS, Belief, Model, Split, as_split, build_model, scores
from gemfi.detectors import (
    DETECTORS,
    KNN,
    ODIN,
    Detector,
    Energy,
    KNNConfig,
    Mahalanobis,
    MahalanobisConfig,
    MaxP,
    Observed,
    TemperatureScaling,
    detector_names,
    fit_together,
    joint_logits,
    observe,
)
from gemfi.errors import InputError, RoleError
from support.detectors import fit_observed

from .conftest import CLASSES, INPUTS, OOD_TEST, TEST, TRAIN, VALIDATION, make_model, wave


def scored(detector: Detector, model: Model, split: Split) -> Tensor:
    if detector.needs == "inputs":
        return detector.score(model, split.x)
    return detector.score_observed(observe(model, split))


class TestObserve:
    def test_it_is_what_the_model_says(self, model: Model) -> None:
        observed = observe(model, TEST)
        belief = model.predict(TEST)
        assert torch.equal(observed.belief.log_p, belief.log_p)
        assert torch.equal(observed.features, model.embed(TEST))
        assert torch.equal(observed.labels, TEST.labels)
        assert observed.logits.dtype == torch.float64
        assert len(observed) == len(TEST)

    def test_a_temperature_is_in_it(self, model: Model) -> None:
        before = observe(model, TEST).belief.probs()
        model.set_temperature(1.0)
        found = observe(model, TEST).belief.probs()
        assert torch.equal(found, model.predict(TEST).probs())
        assert (found - before).abs().max() > 0.01
        torch.testing.assert_close(observe(model, TEST).logits.softmax(1), found)

    def test_tensors_arrays_and_splits_are_alike(self, model: Model) -> None:
        expected = observe(model, TEST).belief.log_p
        for x in (TEST.x, TEST.x.numpy()):
            observed = observe(model, x)
            assert torch.equal(observed.belief.log_p, expected)
            assert observed.y is None
            assert len(MaxP().score_observed(observed)) == len(TEST)
        with pytest.raises(InputError, match="needs a Split with a role, got Tensor"):
            KNN().fit(model, TRAIN.x)  # type: ignore[arg-type]

    def test_the_network_runs_once(self, model: Model) -> None:
        seen: list[int] = []
        model.backbone.register_forward_hook(lambda _m, _x, z: seen.append(len(z)))
        observe(model, TEST, batch_size=8)
        assert seen == [8, 8, 4]

    def test_every_module_keeps_its_mode(self, model: Model) -> None:
        model.train()
        model.head.eval()
        before = [module.training for module in model.modules()]
        observe(model, TEST)
        ODIN().score(model, TEST.x)
        assert [module.training for module in model.modules()] == before

    def test_dropout_is_off(self) -> None:
        noisy = Model(nn.Sequential(make_model().backbone, nn.Dropout(0.5)), make_model().head)
        noisy.train()
        assert torch.equal(observe(noisy, TEST).features, observe(noisy, TEST).features)

    def test_parts_of_different_inputs_are_refused(self, test: Observed) -> None:
        with pytest.raises(InputError, match="not of the same inputs"):
            replace(test, features=test.features[:3])
        with pytest.raises(InputError, match=r"features \(N, D\)"):
            replace(test, logits=test.logits[:, 0])


class TestJointLogits:
    @pytest.mark.parametrize("method", METHODS)
    def test_softmax_is_the_prediction_and_logsumexp_the_energy(self, method: str) -> None:
        torch.manual_seed(0)
        model = build_model(method, "mlp", CLASSES, in_features=INPUTS, width=5, depth=1)
        belief = model.predict(TEST)
        logits = joint_logits(belief)
        assert logits.shape == (len(TEST), CLASSES)
        if method != "t2f-norm":  # whose logits have a norm that its probabilities have not
            torch.testing.assert_close(
                logits.log_softmax(dim=1), belief.log_probs(), rtol=1e-5, atol=1e-5
            )
        torch.testing.assert_close(
            -logits.logsumexp(dim=1), scores.logit_energy(belief), rtol=1e-5, atol=1e-5
        )

    def test_of_a_softmax_they_are_its_own(self, model: Model, test: Observed) -> None:
        assert test.belief.logits is not None
        assert torch.equal(test.logits, test.belief.logits[:, 0])

    def test_of_a_mixture_by_hand(self) -> None:
        logits, weight = wave(5, 2, 3), torch.tensor([0.3, 0.7], dtype=torch.float64)
        belief = Belief(logits.log_softmax(dim=2), weight.log().expand(5, 2), logits=logits)
        found = joint_logits(belief)
        for row in range(5):
            parts = logits[row].exp()
            total = sum(weight[k] * parts[k].sum() for k in range(2))
            for c in range(3):
                p = sum(weight[k] * parts[k, c] / parts[k].sum() for k in range(2))
                assert float(found[row, c]) == pytest.approx(math.log(p * total), abs=1e-12)

    def test_without_logits_they_are_log_probabilities(self, test: Observed) -> None:
        bare = replace(test.belief, logits=None)
        assert torch.equal(joint_logits(bare), bare.log_probs())
        observed = replace(test, belief=bare, logits=joint_logits(bare))
        assert torch.equal(MaxP().score_observed(observed), MaxP().score_observed(test))
        with pytest.raises(InputError, match=r"energy needs logits, and the method .* has none"):
            Energy().score_observed(observed)


class TestRegistry:
    def test_names_are_those_of_the_records(self) -> None:
        assert list(DETECTORS) == [
            "maxp", "energy", "odin", "mahalanobis", "lts", "temperature", "ddu", "knn",
        ]  # fmt: skip
        for name, detector in DETECTORS.items():
            assert detector.info.name == name
            assert detector.info.year >= 2017
            assert detector().needs == detector.info.needs

    def test_all_is_each_of_them_and_the_order_is_one(self) -> None:
        assert detector_names(["all"]) == list(DETECTORS)
        assert detector_names(["all", "knn"]) == list(DETECTORS)
        assert detector_names(["knn", "maxp", "knn"]) == ["maxp", "knn"]
        assert detector_names([]) == []

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(InputError, match="unknown detector 'kn'; known: maxp, energy"):
            detector_names(["all", "kn"])

    def test_a_config_of_another_is_refused(self) -> None:
        with pytest.raises(InputError, match="knn takes a KNNConfig, got MahalanobisConfig"):
            KNN(MahalanobisConfig())
        with pytest.raises(InputError, match="maxp takes a NoneType"):
            MaxP(KNNConfig())


@pytest.mark.parametrize("name", DETECTORS)
class TestEvery:
    def test_far_inputs_score_higher_in_float64(
        self, name: str, model: Model, train: Observed, validation: Observed
    ) -> None:
        """Features and logits of a linear model are far for far inputs, but p is more certain."""
        detector = DETECTORS[name]()
        fit_observed(detector, train, validation)
        inside, outside = scored(detector, model, TEST), scored(detector, model, OOD_TEST)
        assert inside.dtype == outside.dtype == torch.float64
        assert (inside.shape, outside.shape) == ((len(TEST),), (len(OOD_TEST),))
        assert bool(torch.isfinite(torch.cat([inside, outside])).all())
        assert not inside.requires_grad
        if name in {"mahalanobis", "ddu", "knn"}:
            assert outside.median() > inside.median()

    def test_a_score_is_of_its_own_input_alone(
        self, name: str, model: Model, train: Observed, validation: Observed
    ) -> None:
        detector = DETECTORS[name]()
        fit_observed(detector, train, validation)
        whole, part = (scored(detector, model, each) for each in (TEST, TEST.subset([7, 3])))
        torch.testing.assert_close(part, whole[[7, 3]], rtol=1e-9, atol=1e-12)

    def test_the_model_stays_as_it_is(
        self, name: str, model: Model, train: Observed, validation: Observed
    ) -> None:
        before = {key: value.clone() for key, value in model.state_dict().items()}
        detector = DETECTORS[name]()
        fit_observed(detector, train, validation)
        scored(detector, model, TEST)
        assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_fit_refuses_other_roles(self, name: str, model: Model) -> None:
        detector = DETECTORS[name]()
        for first, second in ((TEST, VALIDATION), (VALIDATION, VALIDATION), (TRAIN, TRAIN)):
            with pytest.raises(RoleError, match=f"fitting the detector {name} as"):
                detector.fit(model, first, second)
        with pytest.raises(RoleError, match=r"which fitting the detector .* refuses"):
            detector.fit(model, TRAIN, TEST)

    def test_what_learns_must_be_fitted(self, name: str, model: Model) -> None:
        detector = DETECTORS[name]()
        if detector.learns:
            with pytest.raises(InputError, match=f"{name} is not fitted"):
                scored(detector, model, TEST)
        else:
            scored(detector, model, TEST)


class TestInterface:
    def test_gradients_need_the_model(self, test: Observed) -> None:
        with pytest.raises(InputError, match=r"odin needs gradients .*: call score\(model, x\)"):
            ODIN().score_observed(test)

    @pytest.mark.parametrize("name", DETECTORS)
    def test_models_and_data_are_all_it_takes(self, model: Model, name: str) -> None:
        """Splits, streams and loaders give what a shared look at the data gives."""
        shared, lone = DETECTORS[name](), DETECTORS[name]()
        fit_observed(shared, observe(model, TRAIN), observe(model, VALIDATION))
        loader = DataLoader(TensorDataset(TRAIN.x, TRAIN.labels), batch_size=30)
        lone.fit(model, as_split(loader, role="train"), VALIDATION)
        expected = scored(shared, model, TEST)
        for data in (TEST, TEST.x, DataLoader(TensorDataset(TEST.x, TEST.labels), batch_size=7)):
            torch.testing.assert_close(lone.score(model, data), expected, rtol=1e-6, atol=1e-7)

    @pytest.mark.parametrize("name", DETECTORS)
    def test_data_are_read_once_and_only_where_something_is_learnt(
        self, model: Model, name: str
    ) -> None:
        """A loader is taken for the role that it is given as; labels are of the same reading."""

        class Counted(IterableDataset[Any]):
            passes = 0

            def __init__(self, split: Split) -> None:
                self.split = split

            def __iter__(self) -> Iterator[tuple[Tensor, int]]:
                Counted.passes += 1
                order = torch.randperm(len(self.split)).tolist()
                return ((self.split.x[row], int(self.split.labels[row])) for row in order)

        whole, lone = DETECTORS[name](), DETECTORS[name]()
        whole.fit(model, TRAIN, VALIDATION)
        data = [as_split(Counted(each), role=each.role, length=60) for each in (TRAIN, VALIDATION)]
        Counted.passes = 0
        lone.fit(model, *data)
        assert Counted.passes == {"maxp": 0, "energy": 0, "odin": 0, "lts": 0}.get(name, 1)
        expected = scored(whole, model, TEST)
        torch.testing.assert_close(scored(lone, model, TEST), expected, rtol=1e-6, atol=1e-7)
        lone.fit(model, DataLoader(Counted(TRAIN), 7), DataLoader(Counted(VALIDATION), 9))
        torch.testing.assert_close(scored(lone, model, TEST), expected, rtol=1e-6, atol=1e-7)

    def test_validation_data_may_be_left_out(self, model: Model) -> None:
        detector = KNN()
        detector.fit(model, TRAIN)
        assert bool(torch.isfinite(detector.score(model, TEST)).all())
        with pytest.raises(InputError, match=r"temperature learns from validation data: call fit"):
            TemperatureScaling().fit(model, TRAIN)

    def test_several_share_one_walk(self, model: Model) -> None:
        seen: list[int] = []
        model.backbone.register_forward_hook(lambda _m, _x, z: seen.append(len(z)))
        fit_together([DETECTORS[name]() for name in DETECTORS], model, TRAIN, VALIDATION)
        assert sum(seen) == len(TRAIN) + len(VALIDATION)

    def test_a_fit_that_fails_leaves_nothing_to_score_with(self, model: Model) -> None:
        detector = KNN()
        detector.fit(model, TRAIN)
        broken = make_model()
        broken.register_buffer("input_std", torch.full((INPUTS,), math.nan))
        with pytest.raises(InputError, match="not finite"):
            detector.fit(broken, TRAIN)
        with pytest.raises(InputError, match="knn is not fitted"):
            detector.score(model, TEST)

    def test_inputs_are_checked(self, model: Model) -> None:
        with pytest.raises(InputError, match="at least one input"):
            ODIN().score(model, TEST.x[:0])
        with pytest.raises(InputError, match="batch_size must be an integer of at least 1"):
            ODIN().score(model, TEST.x, batch_size=0)
        bad = TEST.x.clone()
        bad[2] = math.nan
        with pytest.raises(InputError, match="odin score of input 2 is NaN"):
            ODIN().score(model, bad)

    def test_a_second_fit_starts_afresh(self, train: Observed, validation: Observed) -> None:
        detector = KNN(KNNConfig(k=1000))
        for _ in range(2):
            fit_observed(detector, train, validation)
            assert detector.notes == [
                f"k = {len(TRAIN)} and not 1000: there are no more training samples"
            ]

    def test_needs_follow_the_configuration(self) -> None:
        assert Mahalanobis().needs == "features"
        assert Mahalanobis(MahalanobisConfig(noise=0.1)).needs == "inputs"
        assert Mahalanobis(MahalanobisConfig(layers=("first",))).needs == "inputs"
