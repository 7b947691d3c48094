"""The alignment of the MoCo v3 twins: its cases, and a script a stage."""
