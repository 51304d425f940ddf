"""Your own training loop: ask for the loss, step, and finish."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from gemfi import Objective, Policy, build_model
from gemfi.data import digits
from gemfi.decisions import Verdict

torch.manual_seed(0)
task = digits()
loader = DataLoader(TensorDataset(task.train.x, task.train.labels), batch_size=32, shuffle=True)
model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)

epochs = 10
objective = Objective(model, total_steps=epochs * len(loader))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, objective.total_steps)
for epoch in range(epochs):
    for x, y in loader:
        loss = objective(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    terms = ", ".join(f"{name} {float(term):.3f}" for name, term in objective.terms.items())
    print(f"epoch {epoch + 1}: {terms}")
model.finish(loader, task.validation)

policy = Policy.fit(model, task.calibration, false_alarm=0.1)
for name, split in (("test", task.test), *task.ood_test.items()):
    unfamiliar = policy(model.predict(split)).verdict == Verdict.UNFAMILIAR
    print(f"{name}: {unfamiliar.mean():.0%} unfamiliar")
