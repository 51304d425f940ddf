"""What kind of uncertainty is it? The entropy of the prediction, split exactly in three."""

import torch

from gemfi import TrainConfig, build_model, fit
from gemfi.data import digits
from gemfi.scores import uncertainty

torch.manual_seed(0)
task = digits()
model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)
fit(model, task.train, task.validation, TrainConfig(epochs=15, batch_size=32, learning_rate=5e-3))

print("mean over      total = aleatoric + within heads + between heads")
for name, split in {"test": task.test, **task.ood_test}.items():
    parts = uncertainty(model.predict(split))
    means = [float(each.mean()) for each in (parts.total, parts.aleatoric, parts.within)]
    between = float(parts.between.mean())
    print(f"{name:12s} {means[0]:7.3f}   {means[1]:9.3f}   {means[2]:12.3f}   {between:13.3f}")

# Aleatoric: more data would not help. Within: a head has seen little there. Between: heads differ.
belief = model.predict(task.ood_test["digits-8-9"].x[:1])
print("\none image of an 8 or 9, the digits 0 to 6 as each head sees it, and its weight:")
for weight, probs in zip(belief.log_weight.exp()[0], belief.log_p.exp()[0], strict=True):
    print(f"  {weight:.2f}  " + " ".join(f"{p:.2f}" for p in probs))
