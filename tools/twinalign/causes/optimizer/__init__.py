"""Causes in the optimizer's steps and in its schedule."""
