"""The training of `torch_gan.py` in paddle, with one fault on request."""

import json
import sys

import paddle
import paddle.nn.functional as F
from paddle import nn

from tests.cases.attached.images import gan_batches


class Generator(nn.Layer):
    def __init__(self, nz=6, ngf=4):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2DTranspose(nz, ngf * 2, 4, 1, 0, bias_attr=False),
            nn.BatchNorm2D(ngf * 2),
            nn.ReLU(),
            nn.Conv2DTranspose(ngf * 2, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z.unsqueeze(-1).unsqueeze(-1))


class Discriminator(nn.Layer):
    def __init__(self, ndf=4, slope=0.2):
        super().__init__()
        self.conv1 = nn.Conv2D(3, ndf, 4, 2, 1)
        self.conv2 = nn.Conv2D(ndf, ndf * 2, 3, 1, 1)
        self.norm = nn.InstanceNorm2D(ndf * 2)
        self.fc = nn.Linear(ndf * 2 * 16, 1)
        self.slope = slope

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), self.slope)
        x = F.leaky_relu(self.norm(self.conv2(x)), self.slope)
        return self.fc(x.flatten(1)).squeeze(1)


def average(ema, model, decay, fault):
    with paddle.no_grad():
        # paddle's parameters() has the running statistics of batch norms too, and its buffers() has not
        for (name, averaged), parameter in zip(ema.named_parameters(), model.parameters(), strict=True):
            kept = 0.0 if name.endswith(("_mean", "_variance")) and fault != "average_of_statistics" else decay
            averaged.set_value(averaged * kept + parameter * (1 - kept))


def train(attach=None, steps=3, fault=""):
    paddle.seed(1)
    generator, discriminator = Generator(), Discriminator(slope=0.1 if fault == "slope" else 0.2)
    ema = Generator()
    ema.set_state_dict(generator.state_dict())
    for parameter in ema.parameters():
        parameter.stop_gradient = True
    beta1 = 0.9 if fault == "beta1" else 0.5
    opt_d = paddle.optimizer.Adam(2e-3, beta1=beta1, beta2=0.999, parameters=discriminator.parameters())
    opt_g = paddle.optimizer.Adam(2e-3, beta1=0.5, beta2=0.999, parameters=generator.parameters())
    criterion = nn.BCEWithLogitsLoss()
    attachment = attach({"G": generator, "D": discriminator, "ema": ema}, [opt_d, opt_g]) if attach else None
    decay = 0.999 if fault == "average_decay" else 0.99

    def step_d(fake, real):
        if fault == "one_batch":
            out_real, out_fake = discriminator(paddle.concat([real, fake.detach()])).chunk(2)
        else:
            out_real, out_fake = discriminator(real), discriminator(fake if fault == "not_detached" else fake.detach())
        one = 0.9 if fault == "smooth" else 1.0
        loss_d = criterion(out_real, paddle.full([len(real)], one)) + criterion(out_fake, paddle.zeros([len(real)]))
        (loss_d if fault == "not_halved" else 0.5 * loss_d).backward(retain_graph=True)
        opt_d.step()
        opt_d.clear_grad()
        if fault != "not_detached":
            opt_g.clear_grad()

    def step_g(fake, real):
        criterion(discriminator(fake), paddle.ones([len(real)])).backward(retain_graph=True)
        if fault == "average_before":
            average(ema, generator, decay, fault)
        opt_g.step()
        opt_g.clear_grad()
        if fault != "not_cleared":
            opt_d.clear_grad()

    for real, noise in gan_batches(steps):
        real, noise = paddle.to_tensor(real), paddle.to_tensor(noise)
        if fault == "evaluation":
            generator.eval()
        fake = generator(noise)
        if fault == "generator_first":
            step_g(fake, real)
            step_d(fake, real)
        else:
            step_d(fake, real)
            if fault == "twice":
                step_d(fake, real)
            step_g(fake, real)
        if fault not in ("average_before", "average_never"):
            average(ema, generator, decay, fault)
    if attachment:
        attachment.close()


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    options = settings.pop("attach", None)
    if options is not None:
        import twinalign

        train(lambda models, optimizers: twinalign.attach(models, optimizers, **options), **settings)
    else:
        train(**settings)
