"""Classes and functions with torch's arguments for a port to take along, as text: they run where paddle is."""
