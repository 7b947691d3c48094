"""The zoo: every classification architecture that torchvision and paddle.vision share, held against each other."""

from __future__ import annotations

from twinalign.command_packages import callable_as_command

callable_as_command(__name__)
