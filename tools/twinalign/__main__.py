"""`python -m twinalign`."""

from twinalign.cli import main

main()
