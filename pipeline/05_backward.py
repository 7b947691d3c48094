"""Stage 05, backward: whole optimizer steps with every gradient, parameter, buffer and optimizer tensor.

python pipeline/05_backward.py [CASE] [options of `twinalign run`]
"""

import sys

from twinalign.cli import main

main(["run", *sys.argv[1:], "--stages", "backward"])
