"""Convert checkpoints between the frameworks, both ways; framework-free."""

from twinalign.backends.state_layout import StateEntry
from twinalign.conversion.convert_arrays import Conversion, convert_state
from twinalign.conversion.ledger import Ledger, LedgerEntry
from twinalign.conversion.storage import Slot, Stored, storage_rule

__all__ = ["Conversion", "Ledger", "LedgerEntry", "Slot", "StateEntry", "Stored", "convert_state", "storage_rule"]
