"""Recording a side in a process of its own.

`worker` is what runs there (numpy and one framework are all it needs), `process` is the handle on it.
"""
