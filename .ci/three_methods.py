"""A port as a user begins it: two small networks, three methods, no package but the two frameworks."""

from twinalign import Case


class Perceptron(Case):
    """Two linear layers; the names of the layers are the same on both sides."""

    name = "perceptron"

    def reference(self):
        """The network in torch."""
        from torch import nn

        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def reproduced(self):
        """The same network in paddle."""
        from paddle import nn

        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def inputs(self, rng):
        """A batch of random vectors."""
        return {"x": rng.standard_normal((4, 8), dtype="float32")}
