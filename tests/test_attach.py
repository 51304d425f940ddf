"""`attach`: real models of `transformers` (random weights, tiny), and modules of one's own.

The oracle of every network is its own old classifier: on our features it must give the old logits.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import metrics, scores
from gemfi.attachment import attach
from gemfi.backbones import Frozen, Tokens
from gemfi.backbones.attached import pooled
from gemfi.data import Role, Split, as_split
from gemfi.data.normalisation import Normalisation
from gemfi.errors import InputError
from gemfi.methods import GEMConfig
from gemfi.methods.softmax import EnsembleConfig
from gemfi.model import build_model
from gemfi.training import TrainConfig, fit

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
WORDS = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def made(kind: str, *, labels: int = 3, **more: Any) -> Any:
    """A model by the name of its class, with random weights."""
    settings: dict[str, dict[str, Any]] = {
        "ViT": {"image_size": 16, "patch_size": 8, **SMALL},
        "ConvNext": {"hidden_sizes": [6, 8, 10, 12], "depths": [1, 1, 1, 1]},
        "ResNet": {
            "embedding_size": 8,
            "hidden_sizes": [8, 12],
            "depths": [1, 1],
            "layer_type": "basic",
        },
        "Bert": {"max_position_embeddings": 12, **WORDS, **SMALL},
        "DistilBert": {
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 32,
            "max_position_embeddings": 12,
            **WORDS,
        },
        "Roberta": {"max_position_embeddings": 14, **WORDS, "pad_token_id": 1, **SMALL},
        "ModernBert": {**WORDS, "cls_token_id": 1, "sep_token_id": 2, **SMALL},
        "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 12, **WORDS},
    }
    family, task = kind.split("For") if "For" in kind else (kind.removesuffix("Model"), "")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        **{**settings[family], **({"num_labels": labels} if task else {}), **more}
    )
    return getattr(transformers, kind)(config)


IMAGES = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def ids(pad: int, count: int = 5) -> Tensor:
    x = torch.randint(3, 50, (count, 9), generator=torch.Generator().manual_seed(0))
    x[1, 6:] = x[2, 1:] = x[3, 8:] = pad
    return x


def logits(network: Any, x: Tensor, pad: int | None = None) -> Tensor:
    """Of the network as it came."""
    network.eval()
    with torch.no_grad():
        if pad is None:
            return network(pixel_values=x).logits  # type: ignore[no-any-return]
        return network(input_ids=x, attention_mask=(x != pad).long()).logits  # type: ignore[no-any-return]


# ---------------------------------------------------------------- Hugging Face, with a classifier

VISION = {
    "ViTForImageClassification": ("classifier", 16),
    "ConvNextForImageClassification": ("classifier", 12),
    "ResNetForImageClassification": ("classifier.1", 12),
}
TEXT = {
    "BertForSequenceClassification": ("classifier", 0),
    "DistilBertForSequenceClassification": ("classifier", 0),
    "RobertaForSequenceClassification": ("classifier.out_proj", 1),
    "GPT2ForSequenceClassification": ("score", 0),
    "ModernBertForSequenceClassification": ("classifier", 0),  # after a dense layer `head`
}


@pytest.mark.parametrize("kind", VISION)
def test_features_of_images_are_what_the_classifier_saw(kind: str) -> None:
    name, width = VISION[kind]
    network = made(kind)
    x = functional.interpolate(IMAGES, scale_factor=2) if "Conv" in kind else IMAGES
    before = {key: value.clone() for key, value in network.state_dict().items()}
    model = attach(network)
    z = model.embed(x)
    assert z.shape == (5, width)
    torch.testing.assert_close(network.get_submodule(name)(z), logits(network, x))
    assert model.head.num_classes == 3
    assert model.head.info.name == "gem-fi"
    # the given network is as it was, and shares nothing with the copy
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    pointers = {each.data_ptr() for each in network.parameters()}
    assert not pointers & {each.data_ptr() for each in model.parameters()}
    assert not any("classifier" in key for key, _ in model.backbone.named_parameters())


@pytest.mark.parametrize("kind", TEXT)
def test_features_of_texts_are_what_the_classifier_saw(kind: str) -> None:
    name, pad = TEXT[kind]
    network, x = made(kind), ids(TEXT[kind][1])
    model = attach(network, "softmax")
    z = model.embed(x)
    assert z.shape == (5, 16)
    torch.testing.assert_close(network.get_submodule(name)(z), logits(network, x, pad))
    assert model.tokens == Tokens(50, pad)
    # padding changes nothing: the mask is made from it
    longer = torch.cat([x, torch.full((5, 2), pad)], dim=1)
    torch.testing.assert_close(model.embed(longer), z, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=r"0\.\.49, but input 1 has .*\.\.50: were the texts made"):
        model.predict(torch.cat([x[:1], x[:1].clamp_min(50)]))
    if kind.startswith("ModernBert"):  # its positions are angles, and have no end
        return
    with pytest.raises(InputError, match="cannot take texts of 40 tokens; are they longer than it"):
        model.predict(x[:1].repeat(1, 5)[:, :40])


@pytest.mark.parametrize(
    ("kind", "width"),
    [("ViTModel", 16), ("ResNetModel", 12), ("BertModel", 16), ("DistilBertModel", 16)],
)
def test_a_base_model_is_pooled(kind: str, width: int) -> None:
    network = made(kind)
    model = attach(network, "softmax", 4)
    x = IMAGES if model.tokens is None else ids(0)
    network.eval()
    with torch.no_grad():
        output = network(x) if model.tokens is None else network(x, attention_mask=(x != 0).long())
    expected = output.get("pooler_output")
    if expected is None:  # DistilBERT: the mean of the tokens, without padding
        hidden = output.last_hidden_state
        expected = torch.stack(
            [each[real].mean(dim=0) for each, real in zip(hidden, x != 0, strict=True)]
        )
    torch.testing.assert_close(model.embed(x), expected.flatten(1))
    assert model.head.num_features == width
    with pytest.raises(InputError, match=f"{kind} has no classifier to tell .* num_classes="):
        attach(network)


def test_class_names_come_from_the_configuration() -> None:
    named = made("ViTForImageClassification", id2label={0: "cat", 1: "dog", 2: "owl"})
    assert attach(named).inputs.class_names == ("cat", "dog", "owl")
    assert attach(named, num_classes=5).inputs.class_names is None
    assert attach(made("ViTForImageClassification")).inputs.class_names is None  # LABEL_0 and so on


def test_half_precision_weights_give_whole_features() -> None:
    network = made("ViTForImageClassification").to(torch.bfloat16)
    model = attach(network, freeze=True)
    z = model.embed(IMAGES)
    assert z.dtype is torch.float32
    torch.testing.assert_close(
        z, attach(made("ViTForImageClassification")).embed(IMAGES), rtol=0.1, atol=0.1
    )
    split = as_split(IMAGES.repeat(4, 1, 1, 1), torch.arange(20) % 3, role="train")
    fit(model, split, None, TrainConfig(epochs=1, batch_size=10), progress=False)
    assert model.predict(IMAGES).probs().shape == (5, 3)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: made("BertForMaskedLM"),
            r"no base model \(that is its `base_model`\), .*, cls\.predictions\.decoder \(the last",
        ),
        (
            lambda: made("GPT2ForSequenceClassification", pad_token_id=None),
            r"has no padding id, .*: set model\.config\.pad_token_id to that of the tokenizer",
        ),
        (
            lambda: made("BertForSequenceClassification", labels=1),
            "the old head classifier has 1 output, as for a regression: give num_classes=",
        ),
        (lambda: "vit", "expected a torch.nn.Module to attach to, got str"),
        (
            lambda: build_model("softmax", "mlp", 2, in_features=2),
            "a Model with a head already: build_model takes its `backbone`",
        ),
        (
            lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()),
            "Sequential does not end in a linear layer .* linear layers: none; say where",
        ),
        (
            lambda: nn.ModuleDict({"fc": nn.Linear(2, 2), "head": nn.Linear(2, 2)}),
            r"has several layers that may be the classifier; linear layers: fc, head; say where",
        ),
    ],
)
def test_what_cannot_be_attached_to_says_why(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        attach(build())


def test_a_classifier_of_every_token_is_refused_when_it_is_asked() -> None:
    model = attach(made("BertForTokenClassification"))
    with pytest.raises(InputError, match=r"expected features \(B, D\) .*, got \(5, 9, 16\); say"):
        model.predict(ids(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "num_classes must be an integer of at least 2, got 1"),
        ({"num_classes": 2.5}, "num_classes must be an integer"),
        ({"num_features": 0}, "num_features must be an integer of at least 1"),
        ({"num_features": 7}, "num_features is 7, but the input of 2 in Sequential has 6 features"),
        ({"method": "magic"}, "unknown method 'magic'; known: softmax, "),
        ({"config": 3}, "gem-fi takes a GEMConfig, got int"),
        ({"features": "body"}, r"'body' is no part of Sequential; it has 0, 1, 2 and the parts of"),
        ({"features": "1:inside"}, "'1:inside' is no part of Sequential"),
        ({"features": "1"}, "the width of these features is not known: give num_features= or exam"),
        ({"features": nn.Identity()}, "features is a module: one that maps inputs to features nee"),
        ({"features": 3}, "features must be a name or a function, got int"),
        (
            {"features": "1", "num_features": 5, "example": torch.rand(2, 4)},
            "expected 5 .* gives 6",
        ),
    ],
)
def test_other_nonsense_is_refused(options: dict[str, Any], message: str) -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    with pytest.raises(InputError, match=message):
        attach(network, **options)


def test_texts_are_not_normalised() -> None:
    with pytest.raises(InputError, match="normalisation is for images and tables"):
        attach(made("BertForSequenceClassification"), normalisation=Normalisation((0.0,), (1.0,)))


# ---------------------------------------------------------------- modules of one's own


class Plain(nn.Module):
    """Ends as many do: in the logarithm of a softmax, and in a dictionary or a tuple."""

    def __init__(self, returns: str = "tensor") -> None:
        super().__init__()
        self.conv1, self.fc1, self.fc2 = nn.Conv2d(1, 4, 3), nn.Linear(4, 6), nn.Linear(6, 3)
        self.returns = returns

    def forward(self, x: Tensor) -> Any:
        z = torch.relu(self.fc1(self.conv1(x).mean(dim=(2, 3))))
        out = functional.log_softmax(self.fc2(z), dim=1)
        return {"tensor": out, "tuple": (z, out), "dict": {"loss": None, "logits": out}}[
            self.returns
        ]


GREY = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("returns", ["tensor", "tuple", "dict"])
def test_what_is_caught_does_not_depend_on_what_comes_out(returns: str) -> None:
    network = Plain(returns)
    model = attach(network)
    out = network(GREY)
    out = {"tensor": lambda: out, "tuple": lambda: out[1], "dict": lambda: out["logits"]}[returns]()
    with torch.no_grad():
        again = functional.log_softmax(network.fc2(model.embed(GREY)), dim=1)
    torch.testing.assert_close(again, out.detach())
    assert model.head.num_classes == 3


def test_a_guess_that_is_wrong_is_found_out() -> None:
    class Odd(nn.Module):
        """Its last layer was registered first."""

        def __init__(self, wide: int) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(wide, 3), nn.Linear(4, wide)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.first(x))
            return out

    for wide in (4, 6):  # of one width nothing fails by itself
        model = attach(Odd(wide), num_classes=3)
        for _ in range(2):
            with pytest.raises(InputError, match=r"first was taken for .* but last comes after it"):
                model.predict(torch.rand(2, 4))
        with pytest.raises(InputError, match="but last comes after it"):
            attach(Odd(wide), num_classes=3, example=torch.rand(2, 4))
        good = attach(Odd(wide), features="last:input", num_features=wide, num_classes=3)
        assert good.embed(torch.rand(2, 4)).shape == (2, wide)


def test_a_network_that_misses_its_classifier_is_told_apart() -> None:
    class Looks(nn.Module):
        """Its code wants something of the classifier, or of what comes out of it."""

        def __init__(self, *, at_weights: bool) -> None:
            super().__init__()
            self.body, self.fc, self.at_weights = nn.Linear(4, 6), nn.Linear(6, 3), at_weights

        def forward(self, x: Tensor) -> Tensor:
            z = self.body(x)
            out: Tensor = self.fc(z.to(self.fc.weight.dtype) if self.at_weights else z)
            assert out.shape[1] == 3
            return out

    for at_weights, message in (
        (True, r"Looks looks into its classifier fc, .* features=\"fc:input\" and num_features=D"),
        (False, r"fc was taken for the classifier of Looks, but something comes after it; say"),
    ):
        network = Looks(at_weights=at_weights)
        with pytest.raises(InputError, match=message):
            attach(network, example=torch.rand(2, 4))
        good = attach(network, features="fc:input", num_features=6)
        assert good.embed(torch.rand(2, 4)).shape == (2, 6)


def test_features_by_name_and_by_function() -> None:
    network = Plain()
    inside = network.conv1(GREY)
    hidden = network.fc1(inside.mean(dim=(2, 3)))
    cases: list[tuple[Any, Tensor]] = [
        ("fc1", hidden),
        ("fc1:output", hidden),
        ("fc1:input", inside.mean(dim=(2, 3))),
        ("conv1", inside.mean(dim=(2, 3))),  # images are averaged
        (lambda network, x: network.conv1(x).amax(dim=(2, 3)), inside.amax(dim=(2, 3))),
    ]
    for features, expected in cases:
        model = attach(network, features=features, example=GREY)
        torch.testing.assert_close(model.embed(GREY), expected.detach())
        assert model.head.num_features == expected.shape[1]
        assert model.head.num_classes == 3  # of the old classifier all the same
        assert attach(network, features=features, num_features=expected.shape[1]) is not None
    model = attach(network, features=lambda _, x: x, num_features=4)
    with pytest.raises(InputError, match=r"expected features \(B, D\) of a network, got \(4, 1, 6"):
        model.predict(GREY)


def test_a_part_that_runs_twice_is_unclear() -> None:
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x)) + self.head(self.body(-x))  # type: ignore[no-any-return]

    with pytest.raises(
        InputError, match="head of Twins ran 2 times in one pass, and not once; say"
    ):
        attach(Twins()).predict(torch.rand(2, 4))


def test_outputs_are_pooled() -> None:
    z = torch.rand(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    torch.testing.assert_close(pooled(z), z.mean(dim=1))
    torch.testing.assert_close(pooled((z,), mask), torch.stack([z[0, :2].mean(0), z[1, 0]]))
    torch.testing.assert_close(pooled({"other": None, "last_hidden_state": z}), z.mean(dim=1))
    assert torch.equal(pooled({"last_hidden_state": z, "pooler_output": z[:, 0]}), z[:, 0])
    torch.testing.assert_close(pooled(z[:, :, :, None]), z.mean(dim=2))
    with pytest.raises(InputError, match="expected a tensor among the outputs, got NoneType"):
        pooled(None)


def test_without_a_copy_the_classifier_is_gone() -> None:
    network = Plain()
    model = attach(network, copy=False)
    assert isinstance(network.fc2, nn.Identity)
    assert model.backbone.network is network


def test_threads_do_not_get_in_each_others_way() -> None:
    model = attach(Plain(), "softmax")
    batches = [torch.rand(8, 1, 6, 6) for _ in range(4)]
    expected = [model.embed(x) for x in batches]
    model.eval()
    wrong = []

    def ask(index: int) -> None:
        for _ in range(30):
            with torch.no_grad():
                if not torch.equal(model.features(batches[index]), expected[index]):
                    wrong.append(index)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---------------------------------------------------------------- training


def pictures(role: str, count: int = 60) -> Split:
    """Three classes: which of the colours is bright."""
    generator = torch.Generator().manual_seed(len(role))
    y = torch.arange(count) % 3
    x = 0.4 * torch.rand(count, 3, 16, 16, generator=generator)
    x[torch.arange(count), y] += 0.4
    return as_split((255 * x).to(torch.uint8), y, role=role, name=role, num_classes=3)


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("kind", ["ViTForImageClassification", "ResNetForImageClassification"])
def test_images_are_learnt(kind: str, freeze: bool) -> None:
    normalisation = Normalisation.of(pictures("train"))
    model = attach(made(kind), freeze=freeze, normalisation=normalisation)
    assert isinstance(model.backbone, Frozen) == freeze
    before = {key: value.clone() for key, value in model.backbone.state_dict().items()}
    config = TrainConfig(epochs=6 if not freeze else 30, batch_size=20, learning_rate=5e-3)
    fit(model, pictures("train"), pictures("validation"), config, progress=False)
    test = pictures("test")
    assert metrics.accuracy(model.predict(test).probs(), test.labels) > 90
    after = model.backbone.state_dict()
    same = [torch.equal(value, before[key]) for key, value in after.items()]
    assert all(same) if freeze else not all(same)


def test_an_ensemble_has_networks_of_its_own() -> None:
    model = attach(made("ViTForImageClassification"), "ensemble", config=EnsembleConfig(members=2))
    config = TrainConfig(epochs=1, batch_size=20)
    fit(model, pictures("train"), None, config, progress=False)
    assert model.predict(IMAGES).log_weight.shape == (5, 2)


def test_samples_that_the_network_cannot_take_are_named_before_training() -> None:
    model = attach(made("ViTForImageClassification"), config=GEMConfig())
    split = as_split(torch.rand(6, 3, 20, 20), torch.arange(6) % 3, role="train", name="big")
    with pytest.raises(InputError, match=r"cannot take the samples \(3, 20, 20\) of split 'big'"):
        fit(model, split, progress=False)


# ---------------------------------------------------------------- texts, end to end

TOPICS = {
    "weather": "rain snow cloud wind storm sun fog thunder frost breeze",
    "kitchen": "oven bread butter knife salt pepper soup pan flour sugar",
    "football": "goal keeper pitch referee striker penalty league coach stadium corner",
    "music": "violin piano chord melody drum choir rhythm opera guitar flute",
}
COMMON = "the a of and in on with was is very we they saw had near"


class Tokenizer:
    """Words between spaces, filled up to one length."""

    def __init__(self) -> None:
        words = ["[pad]", "[cls]", *COMMON.split(), *" ".join(TOPICS.values()).split()]
        self.ids = {word: index for index, word in enumerate(words)}

    def __call__(self, texts: list[str], length: int = 12) -> Tensor:
        rows = [[1, *(self.ids[word] for word in text.split())] for text in texts]
        return torch.tensor([row + [0] * (length - len(row)) for row in rows])


def written(topic: str, count: int, draw: random.Random) -> list[str]:
    def word() -> str:
        return draw.choice((TOPICS[topic] if draw.random() < 0.45 else COMMON).split())

    return [" ".join(word() for _ in range(draw.randint(5, 10))) for _ in range(count)]


def test_a_text_classifier_knows_an_unfamiliar_topic() -> None:
    tokenizer, draw = Tokenizer(), random.Random(0)  # noqa: S311 - no secret
    known = ("weather", "kitchen", "football")

    def split(role: Role, count: int) -> Split:
        texts = [text for topic in known for text in written(topic, count, draw)]
        y = torch.arange(3).repeat_interleave(count)
        return Split(tokenizer(texts), y, role, f"topics/{role}", 3, known, tokens=True)

    train, validation, test = (
        split(role, count)
        for role, count in ((Role.TRAIN, 150), (Role.VALIDATION, 50), (Role.TEST, 50))
    )
    music = tokenizer(written("music", 150, draw))
    network = made(
        "BertForSequenceClassification",
        vocab_size=len(tokenizer.ids),
        hidden_size=32,
        id2label=dict(enumerate(known)),
    )
    model = attach(network)
    config = TrainConfig(epochs=8, batch_size=32, learning_rate=2e-3)
    result = fit(model, train, validation, config, progress=False)
    assert result.notes[0] == (
        "no scrambled inputs among the outliers: the inputs are token ids; those of kind halo stay"
    )
    inside, outside = model.predict(test), model.predict(music)
    assert metrics.accuracy(inside.probs(), test.labels) > 95
    found = metrics.ood_metrics(scores.unfamiliarity(inside), scores.unfamiliarity(outside))
    assert found["auroc"] > 95
    (asked,) = model.predict(tokenizer(["the storm and the snow"])).labels().tolist()
    assert model.inputs.class_names is not None
    assert model.inputs.class_names[asked] == "weather"


# ---------------------------------------------------------------- without transformers

ALONE = """
import sys
sys.modules["transformers"] = None
import torch
from gemfi.attachment import attach
model = attach(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3)))
assert model.predict(torch.rand(2, 4)).probs().shape == (2, 3)
assert not [name for name in sys.modules if name.split(".")[0] in {"timm", "torchvision"}]
"""


def test_no_other_library_is_imported() -> None:
    subprocess.run([sys.executable, "-c", ALONE], check=True)
    source = Path(__file__).parents[1] / "src" / "gemfi"
    for file in source.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "import transformers" not in text, file
        assert "from transformers" not in text, file
