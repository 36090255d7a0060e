"""`python -m drkit` is `drkit`."""

from drkit.cli.main import main

main()
