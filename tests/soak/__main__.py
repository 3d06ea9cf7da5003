"""Soak for as long as wanted."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.threads import STREAMS, soak


def main() -> None:
    """Decode in many threads, and report how many tokens there were."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        tokens, files = soak(60 * minutes, Path(folder))
    sys.stdout.write(
        f"{len(STREAMS)} threads, {minutes:g} minutes: {tokens:,} tokens, all right; {files:,} files saved and loaded\n"
    )


if __name__ == "__main__":
    main()
