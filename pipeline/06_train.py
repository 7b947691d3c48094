"""Stage 06, train: a real training of both twins, with curves and outcomes.

python pipeline/06_train.py [CASE] [options of `twinalign run`]
"""

import sys

from twinalign.cli import main

main(["run", *sys.argv[1:], "--stages", "train"])
