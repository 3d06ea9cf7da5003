"""Models in directories, which anyone can load: config.json, model.safetensors and a model card.

    model.save_pretrained("my-model")
    model = TokenModel.from_pretrained("my-model")  # or the name of a repository on the Hugging Face Hub

model.safetensors holds everything: the weights, the configuration and a checksum. It is replaced in one step, so the
directory has the old model or the new one at every moment. config.json repeats the configuration for people and other
tools, with the name by which `transformers` knows such a model; one that says something else is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from delayssm.config import Config, Device, differences
from delayssm.storage import files, tensors
from delayssm.storage.tensors import Damaged

#: The number goes up when the content of a file changes its meaning.
FORMAT = "delayssm model 1"
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


class Pretrained(nn.Module):
    """A model that can be saved to a directory, loaded from one, and shared on the Hugging Face Hub."""

    #: Name by which `transformers` knows this kind of model, if it does.
    model_type: ClassVar[str | None] = None

    @property
    def config(self) -> Config:
        """What decides this model. It can be written as JSON and built again."""
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
        content = {"format": FORMAT, **self.config.to_dict(), "about": dict(about or {})}
        shown = content if self.model_type is None else {"model_type": self.model_type, **content}
        text = json.dumps(shown, indent=2)
        directory = Path(directory)
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(f"{directory} is a file; choose another directory for the model")
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / CONFIG
        if config.exists() and config.read_text(errors="replace") != text:
            config.unlink()  # it must never stand beside weights that it does not belong to
        tensors.write(directory / WEIGHTS, FORMAT, self.state_dict(), {"config": json.dumps(content, indent=2)})
        files.write(config, text.encode())
        if card is not None or not (directory / CARD).exists():
            files.write(directory / CARD, (card or _card(self)).encode())

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
        path = _locate(source, revision, token)
        saved, content = _read(path)
        config = Config.from_dict({name: value for name, value in content.items() if name not in ("format", "about")})
        model = config.build(device)
        if not isinstance(model, cls):
            raise TypeError(f"{source} holds a {type(model).__name__}, not a {cls.__name__}")
        try:
            model.load_state_dict(saved)
        except RuntimeError as error:
            raise Damaged(f"{path} does not have the weights that its configuration asks for: {error}") from error
        dtypes = {t.dtype for t in saved.values() if t.is_floating_point()}
        return model.to(*dtypes).eval() if len(dtypes) == 1 else model.eval()

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
    about: dict[str, Any] = _read(_locate(source, revision, token))[1]["about"]
    return about


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the weights and the configuration in a file, after making sure that config.json does not contradict it."""
    saved, about = tensors.read(path, FORMAT)
    try:
        content = json.loads(about["config"])
        if not isinstance(content, dict) or not isinstance(content.get("about"), dict):
            raise ValueError("its configuration is not an object")
    except (KeyError, ValueError) as error:
        raise Damaged(f"{path} is damaged: {error}") from error
    beside = path.with_name(CONFIG)
    if beside.exists():
        try:
            shown = json.loads(beside.read_text())
        except ValueError as error:
            raise Damaged(f"{beside} is damaged: {error}; delete it to load the model without it") from error
        if isinstance(shown, dict):
            shown.pop("model_type", None)
        if shown != content:
            raise ValueError(
                f"{beside} does not belong to {path.name}: {differences(shown, content)}, in {path.name}; delete it to "
                "load the model as it was saved"
            )
    return saved, content


def _locate(source: Path | str, revision: str | None, token: str | None) -> Path:
    """Return the path of the weights, downloaded if they are on the Hub."""
    directory = Path(source)
    if (directory / WEIGHTS).is_file():
        return directory / WEIGHTS
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
        raise ImportError("models on the Hugging Face Hub need an extra: pip install 'delayssm[hub]'") from None
    return huggingface_hub


def _card(model: Pretrained) -> str:
    kind = type(model).__name__
    parameters = sum(p.numel() for p in model.parameters())
    return f"""---
library_name: delayssm
tags:
- state-space-model
- delayssm
---

# {kind}

A `{kind}` with {parameters:,} parameters, made with `delayssm`.

```python
from delayssm import {kind}

model = {kind}.from_pretrained("path/to/this/directory")
```
"""
