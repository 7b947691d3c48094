"""The classifier of `torch_classifier.py` in paddle, by a loop or by `paddle.Model.fit`, with one fault on request."""

import json
import os
import sys

import paddle
from paddle import nn

from tests.cases.attached.images import image_batches


class Batches(paddle.io.IterableDataset):
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for images, labels in self.batches:
            yield images.astype(paddle.get_default_dtype()), labels[:, None]


def train(attach=None, dtype="float32", steps=3, fit=False, fault=""):
    paddle.seed(0)
    ranks, rank = int(os.environ.get("PADDLE_TRAINERS_NUM", "1")), int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    paddle.set_default_dtype(dtype)
    model = nn.Sequential(
        nn.Conv2D(3, 6, 3, padding=1),
        nn.BatchNorm2D(6),
        nn.LeakyReLU(0.2) if fault == "leaky" else nn.ReLU(),
        nn.AvgPool2D(4),
        nn.Flatten(),
        nn.Linear(24, 5),
    )
    if ranks > 1:
        paddle.distributed.init_parallel_env()
        model = paddle.DataParallel(model) if fault != "not_parallel" else model
    momentum = 0.8 if fault == "momentum" else 0.9
    optimizer = paddle.optimizer.Momentum(0.05, momentum, parameters=model.parameters(), weight_decay=1e-3)
    loss_of = nn.CrossEntropyLoss()
    attachment = attach(model, optimizer) if attach else None
    batches = list(image_batches(steps, ranks, 0 if fault == "same_share" else rank))
    if fit:
        trainer = paddle.Model(model)
        trainer.prepare(optimizer, loss_of, paddle.metric.Accuracy())
        trainer.fit(paddle.io.DataLoader(Batches(batches), batch_size=None), epochs=1, verbose=0)
    else:
        model.train()
        for images, labels in batches:
            loss = loss_of(model(paddle.to_tensor(images.astype(dtype))), paddle.to_tensor(labels))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
    if attachment:
        attachment.close()
    return model


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    options = settings.pop("attach", None)
    if options is not None:
        import twinalign

        train(lambda model, optimizer: twinalign.attach(model, optimizer, **options), **settings)
    else:
        train(**settings)
