"""Small trained models that come with the package."""

from pathlib import Path

_HERE = Path(__file__).parent


def directory(name: str) -> Path:
    """Return the directory of a trained model, as `from_pretrained` and the `load` of estimators take it."""
    known = sorted(path.parent.name for path in _HERE.glob("*/model.safetensors"))
    if name not in known:
        raise FileNotFoundError(f"no model {name!r} comes with this package; there are {', '.join(known)}")
    return _HERE / name
