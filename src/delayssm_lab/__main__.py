"""`python -m delayssm`, which is also how `torchrun` starts it."""

from delayssm_lab.cli import main

main()
