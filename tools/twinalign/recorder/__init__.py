"""The recordings of a case: one process a framework, or one a rank, makes them stage by stage."""
