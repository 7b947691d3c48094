"""A classifier of small images in torch: one process or several, in float32 or float64.

`python -m tests.cases.attached.torch_classifier '{"attach": {"out": FOLDER}, …}'`: the settings of `train`.
"""

import json
import os
import sys

import torch
from torch import nn

from tests.cases.attached.images import image_batches


def train(attach=None, dtype="float32", steps=3):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    torch.set_default_dtype(getattr(torch, dtype))
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(24, 5)
    )
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    loss_of = nn.CrossEntropyLoss()
    attachment = attach(model, optimizer) if attach else None
    model.train()
    for images, labels in image_batches(steps, ranks, rank):
        optimizer.zero_grad()
        loss = loss_of(model(torch.from_numpy(images).to(torch.get_default_dtype())), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
    if attachment:
        attachment.close()
    if ranks > 1:
        torch.distributed.destroy_process_group()
    return model


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    options = settings.pop("attach", None)
    if options is not None:
        import twinalign

        train(lambda model, optimizer: twinalign.attach(model, optimizer, **options), **settings)
    else:
        train(**settings)
