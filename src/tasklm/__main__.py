"""`python -m tasklm` is the same as `tasklm`."""

from tasklm.cli.app import main

main()
