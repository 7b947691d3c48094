"""Convert checkpoints between the frameworks, both ways; framework-free."""

from __future__ import annotations

from twinalign.command_packages import callable_as_command
from twinalign.convert.conversion import Conversion, convert_state
from twinalign.convert.layout import StateEntry
from twinalign.convert.ledger import Ledger, LedgerEntry
from twinalign.convert.storage import Slot, Stored, storage_rule

__all__ = ["Conversion", "Ledger", "LedgerEntry", "Slot", "StateEntry", "Stored", "convert_state", "storage_rule"]

callable_as_command(__name__)
