"""Stage 06, train: both twins really trained, with curves and outcomes.

python pipeline/06_train.py [CASE] [options of `twinalign run`]
"""

import sys

from twinalign.cli import main

main(["run", *sys.argv[1:], "--stages", "train"])
