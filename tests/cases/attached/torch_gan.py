"""A generative adversarial training in torch: two models, two optimizers, a moving average of the generator."""

import copy
import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

from tests.cases.attached.images import gan_batches


class Generator(nn.Module):
    def __init__(self, nz=6, ngf=4):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, ndf=4):
        super().__init__()
        self.conv1 = nn.Conv2d(3, ndf, 4, 2, 1)
        self.conv2 = nn.Conv2d(ndf, ndf * 2, 3, 1, 1)
        self.norm = nn.InstanceNorm2d(ndf * 2, affine=True)
        self.fc = nn.Linear(ndf * 2 * 16, 1)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.2)
        x = F.leaky_relu(self.norm(self.conv2(x)), 0.2)
        return self.fc(x.flatten(1)).squeeze(1)


def train(attach=None, steps=3):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    generator, discriminator = Generator(), Discriminator()
    ema = copy.deepcopy(generator).requires_grad_(False)
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    attachment = attach({"G": generator, "D": discriminator, "ema": ema}, [opt_d, opt_g]) if attach else None
    for real, noise in gan_batches(steps):
        real, noise = torch.from_numpy(real), torch.from_numpy(noise)
        fake = generator(noise)
        out_real, out_fake = discriminator(real), discriminator(fake.detach())
        loss_d = 0.5 * (criterion(out_real, torch.ones(len(real))) + criterion(out_fake, torch.zeros(len(real))))
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

        loss_g = criterion(discriminator(fake), torch.ones(len(real)))
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        with torch.no_grad():
            for averaged, parameter in zip(ema.parameters(), generator.parameters(), strict=True):
                averaged.mul_(0.99).add_(parameter, alpha=0.01)
            for averaged, buffer in zip(ema.buffers(), generator.buffers(), strict=True):
                averaged.copy_(buffer)
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
