"""Causes that can be proven: each is applied to the reference and kept only where it reproduces the port."""
