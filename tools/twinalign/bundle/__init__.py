"""A run packed into one file for review, and the check of such a file by a reviewer who does not trust it.

`pack_run` refuses stale, aliased and incomplete runs; `verify_bundle` recomputes every verdict from the arrays. Neither
imports a framework, and no code from a bundle is executed unless `replay` is given.
"""
