"""Runs parts of a case again, alone, on values that the reference has recorded."""
