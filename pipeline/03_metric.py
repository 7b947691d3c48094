"""Stage 03, metric: features, logits, top-1, top-5 and kNN top-1 on real images.

python pipeline/03_metric.py [CASE] [options of `twinalign run`]
"""

import sys

from twinalign.cli import main

main(["run", *sys.argv[1:], "--stages", "metric"])
