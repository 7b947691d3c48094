"""Stage 02, data: both augmented views, evaluation images, and the order of samples.

python pipeline/02_data.py [CASE] [options of `twinalign run`]
"""

import sys

from twinalign.cli import main

main(["run", *sys.argv[1:], "--stages", "data"])
