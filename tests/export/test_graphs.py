"""Graphs against the model: in onnxruntime and in torch, with what a file says of itself."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gemfi import Model, __version__, build_model
from gemfi.data.inputs import InputSpec
from gemfi.errors import InputError
from gemfi.export import Deployed, check_parity, onnx_runner, program_runner, to_program
from gemfi.export.deployed import metadata, snippet
from gemfi.export.graphs import program_bytes, quantised, with_metadata
from gemfi.export.parity import agreement, figures, random_inputs
from support.exports import Made, images

pytest.importorskip("onnxruntime")


def bytes_of(made: Made) -> Tensor:
    """Familiar images and others, 400 in all."""
    return torch.cat([images(200, "validation", 5).x, random_inputs(made.deployed, 200)])


class TestParity:
    def test_onnx_says_what_the_model_says(self, bars: Made) -> None:
        parity = check_parity(bars.deployed, onnx_runner(bars.data), bytes_of(bars))
        print(parity)
        assert parity.is_kept, parity
        assert parity.log_prob < 2e-5
        assert parity.verdicts is not None
        assert min(parity.verdicts["accept"], parity.verdicts["unfamiliar"]) > 20
        assert parity.near < 40, "a margin that holds everything proves nothing"

    def test_the_program_says_it_to_the_bit(self, bars: Made) -> None:
        parity = check_parity(bars.deployed, program_runner(bars.program), bytes_of(bars))
        assert (parity.log_prob, parity.differ_far, parity.differ_near) == (0, 0, 0)
        assert parity.p_value == 0

    @pytest.mark.parametrize("batch", [1, 3, 64])
    def test_any_size_of_a_batch(self, bars: Made, batch: int) -> None:
        x = bytes_of(bars)[:64]
        whole = onnx_runner(bars.data, batch=256)(x)
        parts = onnx_runner(bars.data, batch=batch)(x)
        np.testing.assert_allclose(parts["probs"], whole["probs"], rtol=1e-5)
        assert parts["decision"].tolist() == whole["decision"].tolist()

    def test_p_values_within_each_class(self, bars: Made) -> None:
        assert bars.deployed.p_values is not None
        assert bars.deployed.p_values.is_conditional
        x = bytes_of(bars)
        found, expected = onnx_runner(bars.data)(x), bars.deployed.predict(x)
        apart = abs(found["p_value"] - expected["p_value"].numpy())
        assert (apart < 1e-9).mean() > 0.9
        assert apart.max() < 0.1

    def test_a_blank_image_has_numbers(self, bars: Made) -> None:
        found = onnx_runner(bars.data)(bars.deployed.example(1))
        assert not any(np.isnan(each).any() for each in found.values())


class TestFile:
    def test_inputs_and_outputs(self, bars: Made) -> None:
        graph = bars.proto.graph
        assert [each.name for each in graph.output] == bars.deployed.output_names
        (given,) = graph.input
        sizes = given.type.tensor_type.shape.dim
        assert given.name == "input"
        assert sizes[0].dim_param == "batch"
        assert [each.dim_value for each in sizes[1:]] == [1, 8, 8]

    def test_spectral_norms_are_part_of_the_weights(self, bars: Made) -> None:
        weights = {each.name for each in bars.proto.graph.initializer}
        convolutions = [node for node in bars.proto.graph.node if node.op_type == "Conv"]
        assert len(convolutions) == 3
        assert all(node.input[1] in weights for node in convolutions)
        assert not any("sigma" in name or name.endswith("left") for name in weights)

    def test_no_trace_of_the_machine(self, bars: Made) -> None:
        folder = str(Path(__file__).resolve().parents[2]).encode()
        assert folder not in bars.data
        assert b"site-packages" not in bars.data

    def test_what_it_says_of_itself(self, bars: Made) -> None:
        entries = metadata(bars.deployed, ("top", "middle", "bottom"), "bars")
        assert entries["gemfi_version"] == __version__
        assert entries["method"] == "gem-fi"
        assert json.loads(entries["classes"]) == ["top", "middle", "bottom"]
        assert entries["input"].startswith("(batch, 1, 8, 8) uint8")
        policy = json.loads(entries["policy"])
        assert policy["level"] == 0.1
        assert policy["threshold"] == bars.deployed.policy.threshold  # type: ignore[union-attr]

    def test_it_runs_without_gemfi(self, bars: Made, tmp_path: Path) -> None:
        notes = metadata(bars.deployed, ("top", "middle", "bottom"), "bars")
        contents = with_metadata(bars.proto, notes).SerializeToString()
        (tmp_path / "bars.onnx").write_bytes(contents)
        code = snippet(bars.deployed, "bars.onnx") + (
            'import sys\nassert "gemfi" not in sys.modules and "torch" not in sys.modules\n'
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        label, confidence, verdict = done.stdout.split()
        expected = bars.deployed.predict(bars.deployed.example(1))
        assert label == ("top", "middle", "bottom")[expected["label"].item()]
        assert float(confidence) == pytest.approx(expected["probs"].max().item(), abs=1e-4)
        assert verdict == ("accept", "abstain", "unfamiliar")[expected["decision"].item()]

    def test_the_program_is_read_back(self, bars: Made) -> None:
        again = torch.export.load(io.BytesIO(program_bytes(bars.program)))
        parity = check_parity(bars.deployed, program_runner(again), bytes_of(bars)[:50])
        assert parity.log_prob == 0


class TestInt8:
    def test_the_network_and_nothing_else(self, bars: Made) -> None:
        onnx = pytest.importorskip("onnx")
        small = quantised(bars.proto)
        assert small.layers == {"convolution": 3, "matrix product": 1}
        assert str(small).startswith("3 convolutions and 1 matrix product of the network in int8")
        kinds = Counter(node.op_type for node in onnx.load_from_string(small.data).graph.node)
        assert kinds["ConvInteger"] == 3
        assert kinds["MatMulInteger"] == 1
        before = Counter(node.op_type for node in bars.proto.graph.node)
        assert kinds["Gemm"] + kinds["MatMul"] == before["Gemm"] + before["MatMul"] - 1

    def test_it_is_near(self, bars: Made) -> None:
        x = bytes_of(bars)
        one, other = onnx_runner(bars.data)(x), onnx_runner(quantised(bars.proto).data)(x)
        found = agreement(one, other)
        assert found["label"] > 0.95
        assert 0 < found["probs"] < 0.3
        same = agreement(one, one)
        assert same == {"label": 1.0, "decision": 1.0, "probs": 0.0}

    def test_figures(self, bars: Made) -> None:
        inside, outside = images(90, "validation", 6), images(60, "ood-validation", 7)
        run = onnx_runner(bars.data)
        found = figures(run, "unfamiliarity", inside, {"noise": outside}, 60)
        labels = run(inside.x[:60])["label"]
        assert inside.y is not None
        right = (labels == inside.y[:60].numpy()).mean()
        assert found["accuracy"] == pytest.approx(100 * right)
        assert set(found) == {"accuracy", "ECE", "AUROC noise"}
        assert found["AUROC noise"] > 50

    def test_a_network_without_weights(self) -> None:
        class Nothing:
            class graph:  # noqa: N801 - as in onnx
                initializer = ()
                node = ()

        with pytest.raises(InputError, match="no convolution and no matrix product"):
            quantised(Nothing)


class TestRefusals:
    def test_a_network_that_is_no_graph(self) -> None:
        class Branches(nn.Module):
            num_features = 4

            def forward(self, x: Tensor) -> Tensor:
                return x if bool(x.sum() > 0) else -x

        model: Model = build_model("softmax", Branches(), 3)
        model.inputs = InputSpec(sample_shape=(4,))
        with pytest.raises(InputError, match="softmax on Branches cannot become a graph: "):
            to_program(Deployed(model))
