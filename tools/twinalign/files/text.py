"""Text out of strangers' files: safe to print on one line of a terminal, and file names valid on every system."""

import unicodedata

NAME_LIMIT = 240
_DEVICE_NAMES = {"con", "prn", "aux", "nul", "conin$", "conout$"} | {
    f"{device}{number}" for device in ("com", "lpt") for number in "123456789¹²³"
}


def printable(name: str) -> str:
    """`name` with a question mark for every unprintable character."""
    # A name out of a file must not end a line or a table's row, nor steer a terminal.
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def shown(text: str, limit: int = 160) -> str:
    """`text` for a terminal: one line, no control characters, at most `limit` characters."""
    cut = text[:limit]
    return printable(cut) + ("…" if len(text) > limit else "")


def fault_on_any_system(name: str) -> str | None:
    """What makes a name dangerous or ambiguous on some file system, not only on this one."""
    if not name or len(name) > NAME_LIMIT:
        return f"{len(name)} characters long"
    if not name.isprintable():
        return "written with control or invisible characters"
    if unicodedata.normalize("NFC", name) != name:
        return "not in Unicode's composed form (NFC)"
    if name.startswith("/") or "\\" in name or ":" in name:
        return "an absolute path, or one of another system"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return "a path that leaves its folder" if part == ".." else "a path with empty parts"
        if part.endswith((".", " ")) or part.startswith(" "):
            return "a path with spaces or dots that some systems trim"
        if part.split(".")[0].rstrip(" ").casefold() in _DEVICE_NAMES:
            return "the name of a device on some systems"
    return None
