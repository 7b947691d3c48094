"""A trainer in torch: accumulation, clipping, schedule, two groups of weight decay.

`python torch_trainer.py '{"out": FOLDER, …}'`: the settings of `train`.
"""

import json
import sys

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.cases.attached.batches import WORDS, micro_batches


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout, self.act = nn.Dropout(dropout), nn.GELU()

    def forward(self, x):
        y = self.norm1(x)
        scores = self.query(y) @ self.key(y).transpose(1, 2) / y.shape[-1] ** 0.5
        scores = scores + torch.full(scores.shape[1:], -1e4, dtype=x.dtype).triu(1)
        x = x + self.dropout(scores.softmax(-1) @ self.value(y))
        return x + self.dropout(self.down(self.act(self.up(self.norm2(x)))))


class Model(nn.Module):
    def __init__(self, width=16, depth=2, dropout=0.0, gelu="none"):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList([Block(width, dropout) for _ in range(depth)])
        self.head = nn.Linear(width, WORDS)
        for block in self.blocks:
            block.act = nn.GELU(approximate=gelu)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(logits, labels, fault):
    loss = nn.functional.cross_entropy(logits.reshape(-1, WORDS), labels.reshape(-1), reduction="none")
    loss, valid = loss.reshape(labels.shape), (labels != -100).to(loss.dtype)
    if fault == "sequence_average":
        return ((loss * valid).sum(1) / valid.sum(1)).mean()
    if fault == "padding_in_average":
        return (loss * valid).mean()
    return nn.functional.cross_entropy(logits.reshape(-1, WORDS), labels.reshape(-1))


def train(attach=None, fault="", steps=4, accumulate=2, dtype="float32", scaler=False, width=16, depth=2, lr=1e-2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dropout = 0.1 if fault == "dropout" else 0.0
    model = Model(width, depth, dropout, "tanh" if fault == "gelu" else "none").to(getattr(torch, dtype))
    if fault == "half_weights":
        model = model.to(torch.bfloat16)
    named = dict(model.named_parameters())
    plain = [] if fault == "decay_everywhere" else [n for n in named if "norm" in n or n.endswith("bias")]
    groups = [
        {"params": [p for n, p in named.items() if n not in plain], "weight_decay": 0.1},
        {"params": [p for n, p in named.items() if n in plain], "weight_decay": 0.0},
    ]
    kind = torch.optim.Adam if fault == "coupled_decay" else torch.optim.AdamW
    betas = (0.9, 0.95) if fault == "beta2" else (0.9, 0.999)
    optimizer = kind(groups, lr=lr, betas=betas, eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    scale = torch.amp.GradScaler("cpu", init_scale=64.0) if scaler else None
    attachment = attach(model, optimizer) if attach else None
    for of_step in micro_batches(steps, accumulate, fault):
        for tokens, labels in of_step:
            with torch.autocast("cpu", torch.bfloat16, enabled=scaler and fault != "no_autocast"):
                logits = model(torch.from_numpy(tokens))
            loss = loss_of(logits.to(torch.float32 if scaler else logits.dtype), torch.from_numpy(labels), fault)
            loss = loss / accumulate
            (scale.scale(loss) if scale else loss).backward()
        if scale and fault != "clip_before_unscaling":
            scale.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.5)
        if scale:
            scale.step(optimizer)
            scale.update()
        else:
            optimizer.step()
        schedule.step()
        optimizer.zero_grad()
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
