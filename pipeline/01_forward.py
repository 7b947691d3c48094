"""Stage 01, forward: encoder features in evaluation mode, queries and keys in training mode, updated buffers.

python pipeline/01_forward.py [CASE] [options of `twinalign run`]
"""

import sys

from twinalign.cli import main

main(["run", *sys.argv[1:], "--stages", "forward"])
