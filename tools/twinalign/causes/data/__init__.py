"""Causes in the input pipeline: images, the order of samples, labels."""
