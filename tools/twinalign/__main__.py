"""`python -m twinalign`, and the installed command."""

try:
    from twinalign import interruption

    interruption.begin()
    import gc
except KeyboardInterrupt:
    from twinalign import interruption

    interruption.end_at_once()

_GARBAGE = 100_000
"""New objects after which garbage is looked for. What modules are made of stays: to look through it while they are
imported takes a tenth of that time, and what this program leaves as garbage is small."""


def main() -> None:
    """Run the command line; SIGTERM ends it as Ctrl-C does, also while modules are still being imported."""
    gc.set_threshold(_GARBAGE)
    try:
        from twinalign.cli import main as command_line

        interruption.raise_from_now_on()
        command_line()
    except KeyboardInterrupt:
        interruption.end_at_once()
    finally:
        gc.disable()  # the end of the process gives back what is left, looked through or not


if __name__ == "__main__":
    main()
