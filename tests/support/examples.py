"""Run the examples in the docstrings of the public names of packages: `python -m tests.support.examples delayssm`.

They run in a process of their own, because some change it. An example may use torch, numpy, and the public names of its
package, as a reader would.
"""

import doctest
import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch


def examples(package: ModuleType) -> dict[str, list[doctest.DocTest]]:
    """Return the examples of each public name, those of its methods included."""
    names: dict[str, Any] = {"torch": torch, "np": np, **{name: getattr(package, name) for name in package.__all__}}
    finder = doctest.DocTestFinder(exclude_empty=True)
    return {
        name: [test for test in finder.find(getattr(package, name), name, module=False, globs=names) if test.examples]
        for name in package.__all__
    }


def main() -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for name in sys.argv[1:]:
        for public, tests in examples(importlib.import_module(name)).items():
            if not tests:
                sys.exit(f"{name}.{public} has no example")
            for test in tests:
                torch.manual_seed(0)
                runner.run(test)
    sys.exit(runner.summarize().failed > 0)


if __name__ == "__main__":
    main()
