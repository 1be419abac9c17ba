"""`python -m tasklm` is the same as `tasklm`."""

from tasklm.cli import main

main()
