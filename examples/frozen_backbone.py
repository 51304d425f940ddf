"""A network that somebody trained stays as it is; a head on its features learns in seconds."""

import torch
from torch.nn import functional

from gemfi import Split, TrainConfig, attach, evaluate, fit
from gemfi.bundle import bundled
from gemfi.data import digits

pretrained = bundled("mnist-gem-fi").model.backbone  # of MNIST; in your case a ViT, ...
task = digits()  # other digits, of 8 x 8 pixels and written by others


def enlarged(split: Split) -> Split:
    """The images as the network knows them, 28 x 28."""
    x = functional.interpolate(split.x, size=(28, 28), mode="bilinear")
    return Split(x, split.y, split.role, split.name, split.num_classes)


torch.manual_seed(0)
model = attach(
    pretrained, num_classes=task.num_classes, features=lambda net, x: net(x),
    num_features=pretrained.num_features, freeze=True,
)  # fmt: skip
train, validation = enlarged(task.train), enlarged(task.validation)
fit(model, train, validation, TrainConfig(epochs=30, batch_size=32, learning_rate=5e-3))

ood = {name: enlarged(split) for name, split in task.ood_test.items()}
result = evaluate(model, enlarged(task.test), ood)
print(f"accuracy {result.classification['accuracy']:.1f} %")
for name in ood:
    print(f"{name}: AUROC {result.row(name)['auroc_epistemic']:.1f}")
