"""Found first on the path of a script that `twinalign attach` runs; then the environment's own `sitecustomize`."""

import importlib.machinery
import importlib.util
import json
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != _here]
_own = importlib.machinery.PathFinder.find_spec("sitecustomize", _elsewhere)
if _own is not None and _own.loader is not None:
    _own.loader.exec_module(importlib.util.module_from_spec(_own))
if "TWINALIGN_ATTACH" in os.environ:
    from twinalign.attached.untouched_script import attach_when_made

    attach_when_made(json.loads(os.environ["TWINALIGN_ATTACH"]))
