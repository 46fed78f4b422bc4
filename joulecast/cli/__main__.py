"""`python -m joulecast.cli`."""

from . import main

main()
