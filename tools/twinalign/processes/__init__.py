"""Child processes: starting them, asking them, serving requests in them, ending them."""
