"""A whole run: settings, recordings, verdict, search for faults, report."""
