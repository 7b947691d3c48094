"""All of twinalign's access to paddle: a module that is a `protocol.Backend`."""

from twinalign.backends.paddle.attaching import *
from twinalign.backends.paddle.distributed import *
from twinalign.backends.paddle.flops import *
from twinalign.backends.paddle.models import *
from twinalign.backends.paddle.optimizers import *
from twinalign.backends.paddle.process import *
from twinalign.backends.paddle.tensors import *
from twinalign.backends.paddle.training import *
