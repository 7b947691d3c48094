"""twinalign's access to torch. `twinalign.backends.paddle` has the same modules with the same functions.

`backend` has all of them in one place; `protocol.Backend` describes them. `reference_only` holds what only the
reference needs.
"""
