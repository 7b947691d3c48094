"""Causes, proven: hypotheses that are applied to the reference and kept only where they reproduce the port."""
