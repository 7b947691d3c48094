"""Which layers and parts of a port are wrong, each judged alone on what the reference saw there, and why."""
