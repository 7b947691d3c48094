"""twinalign's access to paddle. `twinalign.backends.torch` has the same modules with the same functions.

`backend` has all of them in one place; `protocol.Backend` describes them.
"""

import warnings

with warnings.catch_warnings():
    # paddle 3.3 warns at import that ccache is missing; nobody compiles custom operators here.
    warnings.simplefilter("ignore")
    import paddle  # noqa: F401
