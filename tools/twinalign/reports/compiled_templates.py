"""Templates of the report compiled once, and kept where Python keeps its own compiled modules."""

import os
import sys
import tempfile
from importlib import resources
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket


class CompiledTemplates(jinja2.BytecodeCache):
    """Keeps compiled templates in `__pycache__` beside them; where nothing can be written, they are compiled anew.

    jinja2 takes nothing that another source, another Python or another format of its own has made.
    """

    def __init__(self) -> None:
        self._folder = Path(str(resources.files("twinalign.reports"))) / "templates" / "__pycache__"

    def _path(self, bucket: Bucket) -> Path:
        return self._folder / f"{bucket.key}.{sys.implementation.cache_tag}.jinja-{jinja2.__version__}"

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            with self._path(bucket).open("rb") as file:
                bucket.load_bytecode(file)
        except (OSError, EOFError, ValueError, TypeError):  # none yet, or damaged
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        written = None
        try:
            self._folder.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                written = Path(file.name)
                bucket.write_bytecode(file)
            os.replace(written, self._path(bucket))
        except OSError:
            if written is not None:
                written.unlink(missing_ok=True)
