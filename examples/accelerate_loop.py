"""Train with Accelerate in two processes."""

import warnings

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, debug_launcher
from torch.utils.data import DataLoader, TensorDataset

from gemfi import Objective, build_model, load, save
from gemfi.data import digits

warnings.filterwarnings("ignore", "Grad strides")  # torch, of convolutions of one channel
FILE, EPOCHS, task = "digits.safetensors", 10, digits()


def work():
    """What each process does, with batches of its own."""
    torch.manual_seed(0)
    options = [DistributedDataParallelKwargs(find_unused_parameters=True)]
    accelerator = Accelerator(cpu=True, kwargs_handlers=options)
    data = TensorDataset(task.train.x, task.train.labels)
    loader = accelerator.prepare(DataLoader(data, batch_size=16, shuffle=True))
    model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)
    loss = Objective(model, total_steps=EPOCHS * len(loader))
    loss, optimizer = accelerator.prepare(loss, torch.optim.AdamW(model.parameters(), lr=5e-3))
    for x, y in (batch for _ in range(EPOCHS) for batch in loader):
        optimizer.zero_grad()
        accelerator.backward(loss(x, y))
        optimizer.step()
    model.finish(task.train, task.validation)  # in every process: each embeds its share
    if accelerator.is_main_process:
        save(FILE, model, calibration=task.calibration, policy="false_alarm=0.1")


if __name__ == "__main__":
    debug_launcher(work, num_processes=2)
    bundle = load(FILE)
    print("test", bundle.decide(task.test).counts())
    print("digits-8-9", bundle.decide(task.ood_test["digits-8-9"]).counts())
