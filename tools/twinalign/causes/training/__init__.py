"""Causes in the training loop and its recipe."""
