"""Planted faults: the tool's own proof that it detects, locates and explains what goes wrong in a port."""
