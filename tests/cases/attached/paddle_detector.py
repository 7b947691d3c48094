"""The training of `torch_detector.py` in paddle, with one fault on request."""

import json
import sys

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed.fleet.utils import recompute

from tests.cases.attached.images import detector_batches


class Detector(nn.Layer):
    def __init__(self, width=16, fault=""):
        super().__init__()
        self.stem = nn.Linear(10, width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(fault == "gelu"))
        self.classes, self.box = nn.Linear(width, 4), nn.Linear(width, 4)
        self.fault = fault

    def forward(self, x):
        x = F.relu(self.stem(x))
        y = recompute(self.body, x) if self.training else self.body(x)
        x = x + (y.detach() if self.fault == "body_detached" else y)
        return {"classes": self.classes(x), "box": self.box(x.detach() if self.fault == "box_detached" else x)}


def loss_of(found, wanted, labels, boxes, valid, fault):
    if fault == "no_smoothing":
        of_classes = F.cross_entropy(found["classes"], labels)
    else:
        smooth = F.label_smooth(F.one_hot(labels, 4), epsilon=0.1)
        of_classes = F.cross_entropy(found["classes"], smooth, soft_label=True)
    of_boxes = F.smooth_l1_loss(found["box"], boxes, reduction="none")
    of_boxes = of_boxes.mean(1) if fault == "box_mean" else of_boxes.sum(1)
    of_boxes = (of_boxes * valid).sum() / (len(valid) if fault == "box_of_all" else valid.sum())
    warmth = 1 if fault == "temperature" else 2
    pair = F.log_softmax(found["classes"] / warmth, -1), F.softmax(wanted / warmth, -1)
    of_teacher = F.kl_div(*pair, reduction="mean" if fault == "divergence_mean" else "batchmean")
    of_teacher = of_teacher.detach() if fault == "teacher_detached" else of_teacher
    return of_classes + (1 if fault == "loss_weight" else 2) * of_boxes + 2 * of_teacher


def average(teacher, student, kept):
    with paddle.no_grad():
        for averaged, parameter in zip(teacher.parameters(), student.parameters(), strict=True):
            averaged.set_value(averaged * kept + parameter * (1 - kept))


def train(attach=None, epochs=2, fault=""):
    paddle.seed(2)
    student, teacher = Detector(fault=fault), Detector()
    teacher.set_state_dict(student.state_dict())
    teacher.eval()
    for parameter in teacher.parameters():
        parameter.stop_gradient = True
    schedule = paddle.optimizer.lr.StepDecay(1e-2, 1, 0.5)
    clip = nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.AdamW(schedule, parameters=student.parameters(), weight_decay=0.05, grad_clip=clip)
    attachment = attach({"student": student, "teacher": teacher}, optimizer) if attach else None
    kept = 0.1 if fault == "average_swapped" else 0.9
    batches = list(detector_batches(epochs))
    for epoch in [batches[0]] * epochs if fault == "same_epoch" else batches:
        for batch in epoch:
            x, labels, boxes, valid = map(paddle.to_tensor, batch)
            found = student(x)
            with paddle.no_grad():
                wanted = teacher(x)["classes"]
            loss_of(found, wanted, labels, boxes, valid, fault).backward()
            optimizer.step()
            optimizer.clear_grad()
            if fault == "schedule_each_step":
                schedule.step()
            if fault != "average_each_epoch":
                average(teacher, student, kept)
        if fault == "average_each_epoch":
            average(teacher, student, kept)
        if fault != "schedule_each_step":
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
