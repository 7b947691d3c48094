"""A small network with its data, metric, optimizer, schedule and training, in paddle."""

import math

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset
from paddle.nn import functional as F

MEAN = (0.48, 0.45, 0.41)
STD = (0.23, 0.22, 0.21)


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        top = (image.shape[0] - self.size) // 2
        left = (image.shape[1] - self.size) // 2
        return image[top : top + self.size, left : left + self.size]


class Flip:
    def __call__(self, image):
        return image[:, ::-1]


class ToFloat:
    def __init__(self, scale=255.0):
        self.scale = scale

    def __call__(self, image):
        return image.astype("float32") / self.scale


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = np.array(mean, "float32"), np.array(std, "float32")

    def __call__(self, image):
        return ((image - self.mean) / self.std).transpose(2, 0, 1)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return np.ascontiguousarray(image)


class Pictures(Dataset):
    def __init__(self, split):
        rng = np.random.default_rng(3 if split == "train" else 4)
        self.images = rng.integers(0, 256, (14, 14, 16, 3), dtype="uint8")
        self.labels = rng.integers(0, 5, 14)
        steps = [CenterCrop(12), ToFloat(), Normalize(MEAN, STD)]
        if split == "train":
            steps = [CenterCrop(12), Flip(), ToFloat(), Normalize(MEAN, STD)]
        self.transform = Compose(steps)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return self.transform(image) if self.transform else image, self.labels[index]


def start():
    """How torch starts convolutions and linear layers."""
    return nn.initializer.KaimingUniform(negative_slope=5**0.5, nonlinearity="leaky_relu")


class Mix(nn.Layer):
    """Attention of each position over the channels' means, with a learned scale."""

    def __init__(self, width, scale=0.5):
        super().__init__()
        self.norm = nn.GroupNorm(2, width, epsilon=1e-4)
        self.proj = nn.Conv2D(width, width, 1, weight_attr=start(), bias_attr=False)
        self.scale = scale

    def forward(self, x):
        gate = F.sigmoid(self.proj(self.norm(x)))
        mean = x.mean((2, 3), keepdim=True).detach()
        return x + self.scale * gate * (x - mean)


class Net(nn.Layer):
    def __init__(self, width=8, classes=5):
        super().__init__()
        self.stem = nn.Conv2D(3, width, 3, stride=2, padding=1, weight_attr=start(), bias_attr=False)
        self.bn = nn.BatchNorm2D(width, epsilon=1e-3)
        self.mix = Mix(width)
        bound = width**-0.5
        self.fc = nn.Linear(width, 2 * width, weight_attr=start(), bias_attr=nn.initializer.Uniform(-bound, bound))
        self.head = nn.Linear(2 * width, classes, weight_attr=nn.initializer.TruncatedNormal(std=0.02))

    def forward(self, x):
        x = F.leaky_relu(self.bn(self.stem(x)), negative_slope=0.1)
        x = self.mix(x)
        x = F.max_pool2d(x, 2).mean((2, 3))
        x = F.normalize(F.gelu(self.fc(x)), axis=-1) * 4.0
        return self.head(x)


def loss(outputs, labels):
    log = F.log_softmax(outputs, axis=-1)
    picked = paddle.take_along_axis(log, labels[:, None], 1).squeeze(1)
    entropy = -(log.exp() * log).sum(-1)
    return -(0.9 * picked + 0.1 * log.mean(-1)).mean() - 0.01 * entropy.mean()


def accuracy(outputs, labels):
    top = outputs.topk(2, axis=-1)[1]
    right = (top == paddle.to_tensor(labels)[:, None]).astype("float32")
    return {"top1": float(right[:, 0].mean()), "top2": float(right.max(1).mean())}


def optimizer(parameters):
    return paddle.optimizer.Momentum(0.1, momentum=0.9, parameters=parameters, weight_decay=1e-2)


def rate_at(step, total=20, warmup=4):
    if step < warmup:
        return 0.1 * (step + 1) / warmup
    progress = (step - warmup) / (total - warmup)
    return 0.001 + 0.5 * (0.1 - 0.001) * (1.0 + math.cos(math.pi * progress))


def schedule(optimizer, step):
    optimizer.set_lr(rate_at(step))


def update_average(average, parameters, momentum=0.9):
    with paddle.no_grad():
        for name, parameter in parameters.items():
            average[name] = momentum * average[name] + (1.0 - momentum) * parameter


def train(model, record, steps):
    loader = DataLoader(Pictures("train"), batch_size=4, shuffle=False, drop_last=True)
    # paddle counts a batch norm's running statistics as parameters
    parameters = {name: parameter for name, parameter in model.named_parameters() if not parameter.stop_gradient}
    average = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    step_of = paddle.optimizer.Momentum(0.1, momentum=0.9, parameters=model.parameters())
    model.train()
    step = 0
    for _ in range(2):
        for images, labels in loader:
            if steps is not None and step == steps:
                break
            schedule(step_of, step)
            found = loss(model(images.astype(paddle.get_default_dtype())), labels)
            step_of.clear_grad()
            found.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            step_of.step()
            update_average(average, parameters)
            record("loss", float(found))
            record("average", float(sum(value.square().sum() for value in average.values())))
            step += 1
    return {}
