"""All of twinalign's access to torch: a module that is a `protocol.Backend`."""

from twinalign.backends.torch.attaching import *
from twinalign.backends.torch.distributed import *
from twinalign.backends.torch.flops import *
from twinalign.backends.torch.models import *
from twinalign.backends.torch.optimizers import *
from twinalign.backends.torch.process import *
from twinalign.backends.torch.tensors import *
from twinalign.backends.torch.training import *
