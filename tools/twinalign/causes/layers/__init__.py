"""Causes of wrong layers: what is wrong in a unit of layers, and how the reference is made wrong in the same way."""
