"""Planted faults: the tool's own proof that it detects, locates and explains what goes wrong in a port."""

from __future__ import annotations

from twinalign.command_packages import callable_as_command

callable_as_command(__name__)
