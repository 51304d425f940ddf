"""Texts: a transformer that says when a topic is new; with random weights, to need no network."""

import torch
from transformers import BertConfig, BertForSequenceClassification

from gemfi import Split, TrainConfig, attach, fit, metrics
from gemfi.scores import unfamiliarity

SPORT = "goal match team player league score coach ball".split()
COOKING = "oven butter salt recipe dough pan sauce bake".split()
SPACE = "orbit planet rocket moon star telescope comet launch".split()
WORDS = ["[pad]", *"the a of and in to was very old new".split(), *SPORT, *COOKING, *SPACE]
generator = torch.Generator().manual_seed(0)


def texts(topic: list[str], count: int) -> torch.Tensor:
    """Token ids of texts of twelve words, about half of them of a topic."""
    own = torch.tensor([WORDS.index(word) for word in topic])
    drawn = own[torch.randint(len(own), (count, 12), generator=generator)]
    others = torch.randint(1, 11, (count, 12), generator=generator)
    return torch.where(torch.rand(count, 12, generator=generator) < 0.5, drawn, others)


def split(role: str, count: int) -> Split:
    """Texts of the two topics that are known."""
    x = torch.cat([texts(SPORT, count), texts(COOKING, count)])
    return Split(x, torch.arange(2 * count) // count, role, role, 2, tokens=True)


torch.manual_seed(0)
size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
bert = BertForSequenceClassification(BertConfig(vocab_size=len(WORDS), num_labels=2, **size))
model = attach(bert, method="gem-fi")
fit(model, split("train", 300), split("validation", 60), TrainConfig(epochs=6, batch_size=32))

known, new = model.predict(split("test", 100)), model.predict(texts(SPACE, 200))
print("accuracy", metrics.accuracy(known.probs(), torch.arange(200) // 100))
print("AUROC of a new topic", metrics.auroc(unfamiliarity(known), unfamiliarity(new)))
