"""The trainer of `torch_trainer.py` in paddle, with one fault on request."""

import json
import sys

import paddle
from paddle import nn

from tests.cases.attached.batches import WORDS, micro_batches


class Block(nn.Layer):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout, self.act = nn.Dropout(dropout), nn.GELU()

    def forward(self, x):
        y = self.norm1(x)
        scores = self.query(y) @ self.key(y).transpose([0, 2, 1]) / y.shape[-1] ** 0.5
        scores = scores + paddle.full(scores.shape[1:], -1e4, dtype=x.dtype).triu(1)
        x = x + self.dropout(nn.functional.softmax(scores) @ self.value(y))
        return x + self.dropout(self.down(self.act(self.up(self.norm2(x)))))


class Model(nn.Layer):
    def __init__(self, width=16, depth=2, dropout=0.0, tanh=False):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.blocks = nn.LayerList([Block(width, dropout) for _ in range(depth)])
        self.head = nn.Linear(width, WORDS)
        for block in self.blocks:
            block.act = nn.GELU(tanh)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(logits, labels, fault):
    loss = nn.functional.cross_entropy(logits.reshape([-1, WORDS]), labels.reshape([-1]), reduction="none")
    loss, valid = loss.reshape(labels.shape), (labels != -100).astype(loss.dtype)
    if fault == "sequence_average":
        return ((loss * valid).sum(1) / valid.sum(1)).mean()
    if fault == "padding_in_average":  # paddle's own mean, where ignore_index is -100
        return nn.functional.cross_entropy(logits.reshape([-1, WORDS]), labels.reshape([-1]))
    return (loss * valid).sum() / valid.sum()


def make_optimizer(model, fault, lr):
    named = dict(model.named_parameters())
    plain = [] if fault == "decay_everywhere" else [p.name for n, p in named.items() if "norm" in n or "bias" in n]
    held = [p for n, p in named.items() if fault != "frozen" or not n.startswith("embed")]
    first = (
        (lambda step: min(1.0, (step + 2) / 3)) if fault == "schedule_early" else lambda step: min(1.0, (step + 1) / 3)
    )
    schedule = paddle.optimizer.lr.LambdaDecay(lr * (2 if fault == "learning_rate" else 1), first)
    limit = 0.1 if fault == "clip_norm" else 0.5
    clip = nn.ClipGradByNorm(limit) if fault == "clip_each_tensor" else nn.ClipGradByGlobalNorm(limit)
    clip = None if fault in ("no_clip", "clip_each_micro_batch") else clip
    settings = {"learning_rate": schedule, "parameters": held, "grad_clip": clip}
    settings |= {"beta2": 0.95 if fault == "beta2" else 0.999, "epsilon": 1e-5 if fault == "epsilon" else 1e-8}
    settings["beta1"] = 0.8 if fault == "beta1" else 0.9
    if fault == "coupled_decay":
        for parameter in held:
            parameter.regularizer = None if parameter.name in plain else paddle.regularizer.L2Decay(0.1)
        return paddle.optimizer.Adam(**settings), schedule
    decays = lambda name: name not in plain  # noqa: E731
    return paddle.optimizer.AdamW(weight_decay=0.1, apply_decay_param_fun=decays, **settings), schedule


def train(attach=None, fault="", steps=4, accumulate=2, dtype="float32", width=16, depth=2, lr=1e-2):
    paddle.seed(0)
    paddle.set_default_dtype(dtype)
    model = Model(width, depth, 0.1 if fault == "dropout" else 0.0, fault == "gelu")
    optimizer, schedule = make_optimizer(model, fault, lr)
    attachment = attach(model, optimizer) if attach else None
    if fault == "other_weights":
        with paddle.no_grad():
            model.head.weight.set_value(model.head.weight * 1.01)
    for number, of_step in enumerate(micro_batches(steps, accumulate, fault)):
        for tokens, labels in of_step:
            loss = loss_of(model(paddle.to_tensor(tokens)), paddle.to_tensor(labels), fault)
            (loss if fault == "not_averaged" else loss / accumulate).backward()
            if fault == "clip_each_micro_batch":
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if not (fault == "skipped_step" and number == 1):
            optimizer.step()
        if fault == "schedule_never" or (fault == "schedule_late" and number == 0):
            pass
        else:
            schedule.step()
        if fault == "not_cleared" or (fault == "skipped_step" and number == 1):
            continue
        optimizer.clear_grad()
        if fault == "moved_between" and number == 0:
            with paddle.no_grad():
                model.head.weight.set_value(model.head.weight * 0.99)
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
