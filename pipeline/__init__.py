"""The alignment of the MoCo v3 twins: its cases, and one script per stage."""
