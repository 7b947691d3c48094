"""The catalogue's faults, a module for each kind of place; `twinalign.planted_faults.catalogue` says how to add one."""
