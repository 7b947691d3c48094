"""Stage 04, loss: both terms of the symmetrised contrastive loss and their sum.

python pipeline/04_loss.py [CASE] [options of `twinalign run`]
"""

import sys

from twinalign.cli import main

main(["run", *sys.argv[1:], "--stages", "loss"])
