"""Train a transformer with Hugging Face's Trainer: dict batches in, a finished model out."""

import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from gemfi import Objective, attach
from gemfi.metrics import auroc
from gemfi.scores import unfamiliarity

torch.manual_seed(0)


def texts(count, topics=(0, 1, 2)):
    """Each topic has 20 words of its own; 0 is padding."""
    labels = torch.tensor(topics)[torch.arange(count) % len(topics)]
    ids = 1 + 20 * labels[:, None] + torch.randint(20, (count, 12))
    return Dataset.from_dict({"input_ids": ids.tolist(), "labels": labels.tolist()})


class Loss(Objective):
    """Trainer gives columns by their names, and looks for `loss`."""

    def forward(self, input_ids, labels):
        """Of one batch."""
        return {"loss": super().forward(input_ids, labels)}


small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=100, intermediate_size=64, num_labels=3, **small)
model = attach(BertForSequenceClassification(config))
train, held = texts(600), texts(150)
quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
steps = TrainingArguments("trainer", max_steps=120, learning_rate=2e-3, **quiet)
Trainer(Loss(model, total_steps=steps.max_steps), steps, train_dataset=train).train()
model.finish(train, held)

known, new = model.predict(texts(150)), model.predict(texts(150, topics=(3,)))
print(f"new topic: AUROC {auroc(unfamiliarity(known), unfamiliarity(new)):.1f}")
