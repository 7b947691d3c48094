"""What must hold of every ledger of a conversion."""

from collections.abc import Sequence

from twinalign.conversion import Ledger


def source_keys_in(ledger: Ledger) -> set[str]:
    """Every source key that an entry mentions."""
    return {key for entry in ledger.entries for key in entry.source}


def unaccounted(ledger: Ledger, source_keys: Sequence[str], target_keys: Sequence[str]) -> list[str]:
    """Keys of either side that no entry mentions: empty, or the conversion is wrong."""
    made = {entry.target for entry in ledger.entries}
    return [key for key in source_keys if key not in source_keys_in(ledger)] + [k for k in target_keys if k not in made]
