"""What twinalign does with paddle on the port's side alone."""
