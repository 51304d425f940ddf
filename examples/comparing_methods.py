"""Several methods on the same data and network, by the same numbers."""

import torch

from gemfi import METHODS, TrainConfig, build_model, evaluate, fit
from gemfi.data import digits

task = digits()
config = TrainConfig(epochs=10, batch_size=32, learning_rate=5e-3)
print(f"{'method':10s} {'accuracy':>8s} {'NLL':>6s} {'ECE':>5s} {'near':>6s} {'far':>6s}  AUROC")
for name in ("softmax", "edl", "daedl", "gem-fi"):
    torch.manual_seed(0)
    model = build_model(name, "convnet", task.num_classes, size=8, channels=16)
    fit(model, task.train, task.validation, config)
    result = evaluate(model, task.test, task.ood_test)
    id_, near, far = result.classification, result.row("digits-8-9"), result.row("noise")
    print(
        f"{name:10s} {id_['accuracy']:8.1f} {id_['nll']:6.3f} {id_['ece']:5.1f} "
        f"{near['auroc_epistemic']:6.1f} {far['auroc_epistemic']:6.1f}  "
        f"by {METHODS[name].info.epistemic}"
    )
