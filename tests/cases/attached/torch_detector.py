"""A detector in torch: three losses, a teacher that is its moving average, checkpointing, a rate of each epoch."""

import copy
import json
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.cases.attached.images import detector_batches


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Linear(10, width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        self.classes, self.box = nn.Linear(width, 4), nn.Linear(width, 4)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = x + checkpoint(self.body, x, use_reentrant=False)
        return {"classes": self.classes(x), "box": self.box(x)}


def train(attach=None, epochs=2):
    torch.manual_seed(2)
    torch.set_num_threads(1)
    student = Detector()
    teacher = copy.deepcopy(student).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    attachment = attach({"student": student, "teacher": teacher}, optimizer) if attach else None
    for epoch in detector_batches(epochs):
        for batch in epoch:
            x, labels, boxes, valid = map(torch.from_numpy, batch)
            found = student(x)
            with torch.no_grad():
                wanted = teacher(x)["classes"]
            of_classes = F.cross_entropy(found["classes"], labels, label_smoothing=0.1)
            of_boxes = (F.smooth_l1_loss(found["box"], boxes, reduction="none").sum(1) * valid).sum() / valid.sum()
            pair = F.log_softmax(found["classes"] / 2, -1), F.softmax(wanted / 2, -1)
            (of_classes + 2 * of_boxes + 2 * F.kl_div(*pair, reduction="batchmean")).backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for averaged, parameter in zip(teacher.parameters(), student.parameters(), strict=True):
                    averaged.mul_(0.9).add_(parameter, alpha=0.1)
        schedule.step()
    if attachment:
        attachment.close()


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    options = settings.pop("attach", None)
    if options is not None:
        import twinalign

        train(lambda models, optimizer: twinalign.attach(models, optimizer, **options), **settings)
    else:
        train(**settings)
