"""Models that can be saved to directories and repositories, and loaded from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from delayssm.config import Config, Device
from delayssm.storage.model_files import CARD, WEIGHTS, read, write
from delayssm.storage.tensors import Damaged


class Pretrained(nn.Module):
    """A model that can be saved to a directory, loaded from one, and shared on the Hugging Face Hub.

    >>> model = Stack([Block(DS4D(8, 16, max_delay=100))])
    >>> model.save_pretrained("my-model", about={"made for": "an example"})
    >>> again = Pretrained.from_pretrained("my-model")  # or Stack.from_pretrained, for a model of that kind
    >>> again.config == model.config
    True
    """

    #: Name by which `transformers` knows this kind of model, if it does.
    model_type: ClassVar[str | None] = None

    @property
    def config(self) -> Config:
        """Everything that defines this model. It can be written as JSON and built again."""
        raise TypeError(f"{type(self).__name__} has no configuration, so it cannot be saved")

    def save_pretrained(
        self, directory: Path | str, *, card: str | None = None, about: Mapping[str, Any] | None = None
    ) -> None:
        """Write the model to a directory, as config.json, model.safetensors and README.md.

        Args:
            directory: Directory, which is made if it does not exist. A model that is there is replaced.
            card: Text of the model card in Markdown; None: a short one, unless there is a card already.
            about: Facts to keep with the model, such as names of classes, as JSON-able values.
        """
        directory = Path(directory)
        if card is None and not (directory / CARD).exists():
            card = _card(self)
        write(directory, self.description(), self.state_dict(), card, about)

    def description(self) -> dict[str, Any]:
        """Return the configuration as config.json has it."""
        known = {} if self.model_type is None else {"model_type": self.model_type}
        return {**known, **self.config.to_dict()}

    @classmethod
    def from_pretrained(
        cls, source: Path | str, *, device: Device = None, revision: str | None = None, token: str | None = None
    ) -> Self:
        """Return a saved model, in evaluation mode.

        Called on `Pretrained` itself, it returns a model of any kind.

        Args:
            source: Directory that `save_pretrained` wrote, or the name of a repository on the Hub, "owner/name".
            device: Device of the parameters.
            revision: Branch, tag or commit of a repository.
            token: Access token for a private repository.
        """
        saved = read(_locate(source, revision, token))
        config = Config.from_dict(saved.config)
        model = config.build(device)
        if not isinstance(model, cls):
            raise TypeError(f"{source} holds a {type(model).__name__}, not a {cls.__name__}")
        try:
            model.load_state_dict(saved.tensors)
        except RuntimeError as error:
            raise Damaged(f"{saved.path} does not have the weights that its configuration asks for: {error}") from error
        dtypes = {name: t.dtype for name, t in saved.tensors.items()}
        narrowest = min((t.dtype for t in saved.tensors.values() if t.is_floating_point()), key=lambda d: d.itemsize)
        if {name: t.dtype for name, t in config.build("meta").to(narrowest).state_dict().items()} == dtypes:
            model.to(narrowest)  # as it was cast before it was saved
        return model.eval()

    def push_to_hub(
        self,
        name: str,
        *,
        card: str | None = None,
        about: Mapping[str, Any] | None = None,
        private: bool = False,
        token: str | None = None,
        message: str = "Upload model",
    ) -> str:
        """Upload the model to a repository on the Hub, which is made if it does not exist, and return its address.

        Args:
            name: Name of the repository, "owner/name".
            card: Text of the model card; None: a short one.
            about: Facts to keep with the model.
            private: Whether a new repository is private.
            token: Access token; None: that of `hf auth login`.
            message: Message of the commit.
        """
        import tempfile

        hub = _hub()
        api = hub.HfApi(token=token)
        repository = api.create_repo(name, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, card=card, about=about)
            api.upload_folder(repo_id=repository.repo_id, folder_path=folder, commit_message=message)
        return str(repository)


def read_about(source: Path | str, *, revision: str | None = None, token: str | None = None) -> dict[str, Any]:
    """Return the facts that were saved with a model."""
    return read(_locate(source, revision, token)).about


def _locate(source: Path | str, revision: str | None, token: str | None) -> Path:
    """Return the path of the weights, downloaded if they are on the Hub."""
    directory = Path(source)
    if (directory / WEIGHTS).is_file():
        return directory / WEIGHTS
    if directory.is_file():
        raise NotADirectoryError(f"{directory} is a file; name the directory that save_pretrained wrote")
    if directory.exists():
        raise FileNotFoundError(f"{directory} does not hold a model: it has no {WEIGHTS}")
    if not isinstance(source, str) or not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        raise FileNotFoundError(f"there is no directory {source}; a repository on the Hub is called owner/name")
    hub = _hub()
    try:
        return Path(hub.hf_hub_download(source, WEIGHTS, revision=revision, token=token))
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError, OSError) as error:
        raise OSError(f"{source} is no directory here, and could not be downloaded from the Hub: {error}") from error


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError("models on the Hugging Face Hub need an extra: pip install '.[hub]' in a clone") from None
    return huggingface_hub


def _card(model: Pretrained) -> str:
    kind = type(model).__name__
    parameters = sum(p.numel() for p in model.parameters())
    return make_card(kind, kind, f"A `{kind}` with {parameters:,} parameters, made with `delayssm`.")


def make_card(kind: str, title: str, text: str) -> str:
    """Return the card of a model of a class of this library, which begins with a title and a text."""
    return f"""---
library_name: delayssm
tags:
- state-space-model
- delayssm
---

# {title}

{text}

```python
from delayssm import {kind}

model = {kind}.from_pretrained("path/to/this/directory")
```
"""
