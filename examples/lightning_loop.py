"""Train with Lightning, from a data set that is read item by item."""

import warnings

import lightning
import torch
from torch.utils.data import DataLoader, Dataset

from gemfi import Policy, TrainConfig, as_split, build_model
from gemfi.data import digits
from gemfi.interop import lightning_module

warnings.simplefilter("ignore")  # Lightning's advice on workers
torch.manual_seed(0)
task = digits()


class Images(Dataset):
    """In earnest the names of files."""

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return len(self.split)

    def __getitem__(self, row):
        return {"pixel_values": self.split.x[row], "labels": int(self.split.labels[row])}


train = DataLoader(Images(task.train), batch_size=32, shuffle=True)
held = DataLoader(Images(task.validation))
model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)
module = lightning_module(model, train, held, TrainConfig(learning_rate=5e-3))
quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar"], False)
lightning.Trainer(max_epochs=10, accelerator="cpu", **quiet).fit(module, train, held)
policy = Policy.fit(model, as_split(Images(task.calibration), role="calibration"), false_alarm=0.1)
print("test:", policy(model.predict(Images(task.test))).counts())
print("digits-8-9:", policy(model.predict(task.ood_test["digits-8-9"])).counts())
