"""Your own network: any module that returns (B, D) features learns to know its limits."""

import torch
from torch import nn

from gemfi import TrainConfig, build_model, evaluate, fit
from gemfi.data import digits


class Backbone(nn.Module):
    """A small CNN; `num_features` says how wide its output is."""

    num_features = 64

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(256, 64), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (B, 1, 8, 8) to features (B, 64)."""
        return self.layers(x)


torch.manual_seed(0)
task = digits()  # learns 0 to 6; 8, 9 and synthetic images are unfamiliar
model = build_model("gem-fi", Backbone(), task.num_classes)
fit(model, task.train, task.validation, TrainConfig(epochs=15, batch_size=32, learning_rate=5e-3))

result = evaluate(model, task.test, task.ood_test)
print(f"accuracy {result.classification['accuracy']:.1f} %, ECE {result.classification['ece']:.1f}")
for name in task.ood_test:
    print(f"{name}: AUROC {result.row(name)['auroc_epistemic']:.1f}")
