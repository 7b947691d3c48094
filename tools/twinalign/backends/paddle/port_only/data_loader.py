"""Errors of datasets: paddle's loader without workers leaves them in its thread, and what waits for it never ends."""

import functools
from typing import Any

from paddle.io.dataloader import dataloader_iter

_ITERATOR = "_DataLoaderIterSingleProcess"


def raise_errors_of_datasets() -> None:
    """Let every later loader of this process raise what its dataset raises, where the batch is asked for."""
    iterator = getattr(dataloader_iter, _ITERATOR, None)
    read, load = getattr(iterator, "__next__", None), getattr(iterator, "_thread_loop", None)
    if iterator is None or read is None or load is None or hasattr(load, "__wrapped__"):
        return

    @functools.wraps(load)
    def loaded(self: Any, *args: Any) -> None:
        try:
            load(self, *args)
        except Exception as error:
            self.error_of_dataset = error
            self._exit_thread_expectedly()  # the batches before it can still be read

    @functools.wraps(read)
    def next_batch(self: Any) -> Any:
        try:
            return read(self)
        except Exception as stopped:
            if (error := getattr(self, "error_of_dataset", None)) is None:
                raise
            raise error from stopped

    iterator._thread_loop, iterator.__next__ = loaded, next_batch
