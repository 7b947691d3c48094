"""The catalogue's faults, a module for each kind of place; `twinalign.selftest.catalogue` says how to add one."""
