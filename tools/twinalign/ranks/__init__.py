"""Stages recorded by several processes a side: what each is given, their recordings, and where the ranks go wrong."""
