"""The review bundle: a run packed into one file, and the check of such a file by someone who trusts nobody.

`pack_run` refuses what no reviewer should be handed; `verify_bundle` recomputes every verdict from the arrays. Neither
imports a framework, and nothing out of a bundle is executed unless `replay` is asked for.
"""
