"""`python -m joulecast`."""

from .cli import main

main()
