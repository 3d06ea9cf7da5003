"""`python -m delayssm`, which is also how `torchrun` starts it."""

from delayssm.cli import main

main()
