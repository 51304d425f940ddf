"""Is the stream still like the calibration data? A test that may look after every input."""

import torch

from gemfi import Monitor, TrainConfig, build_model, fit
from gemfi.data import digits

torch.manual_seed(0)
task = digits()
model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)
fit(model, task.train, task.validation, TrainConfig(epochs=15, batch_size=32, learning_rate=5e-3))

# It fires on at most 1 % of all streams that do not drift, however long they are.
monitor = Monitor.fit(model, task.calibration, false_alarm=0.01)

monitor.update(model.predict(task.test))
print(monitor.summary(), "\n")

blurred = torch.nn.functional.avg_pool2d(task.test.x, 3, stride=1, padding=1)  # a dirty lens
monitor.update(model.predict(blurred))
print(monitor.summary())
monitor.plot("stream.png")
