"""Is this one input in or out? A policy answers, and says what can be relied upon."""

import torch

from gemfi import Policy, TrainConfig, build_model, fit
from gemfi.data import digits
from gemfi.decisions import operating_points, plot_operating_points

torch.manual_seed(0)
task = digits()
model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)
fit(model, task.train, task.validation, TrainConfig(epochs=15, batch_size=32, learning_rate=5e-3))

# At most 5 % of known inputs are called unfamiliar; at least 90 % of the others are accepted.
policy = Policy.fit(model, task.calibration, false_alarm=0.05, coverage=0.9)
print(policy.summary())

for name, split in {"test": task.test, **task.ood_test}.items():
    decisions = policy(model.predict(split))
    print(f"{name:12s} {decisions.counts()}")
print("one input:", policy(model.predict(task.ood_test["digits-8-9"].x[:1]))[0])

# A picture of what there is to choose from.
points = operating_points(model, task.calibration, task.ood_validation)
plot_operating_points(points, policy, "operating-points.png")
