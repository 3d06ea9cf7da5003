"""The `delayssm` command."""

import sys
from pathlib import Path


def info() -> None:
    """Show versions, backend and threads."""
    from delayssm.runtime import describe

    for name, value in describe().items():
        print(f"{name:10} {value}")


def demo(out: Path = Path("demo"), steps: int = 600, seed: int = 0) -> None:
    """Fit two echoes with DS4D and with S4D, and draw what each has learned.

    Args:
        out: folder for the picture.
        steps: training steps.
        seed: seed of parameters and signals.
    """
    from delayssm.lab import demo as first_look
    from delayssm.runtime import keep_freed_memory

    keep_freed_memory()
    print(f"Look at {first_look.run(out, steps, seed).resolve()}")


def main() -> None:
    """Run a subcommand."""
    try:
        import tyro
    except ImportError:
        sys.exit("the command line needs the lab extra: pip install 'delayssm[lab]'")
    tyro.extras.subcommand_cli_from_dict({"info": info, "demo": demo}, prog="delayssm", description=__doc__)
