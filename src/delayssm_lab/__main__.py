"""Entry point of `python -m delayssm_lab` and of `torchrun -m delayssm_lab`."""

from delayssm_lab.cli import main

main()
