"""Configurations: what decides a module, as a frozen value that can be written as JSON and built again.

A hyper-parameter is declared once, as a field of the configuration of the module that uses it: with its type, its
default, its check (in ``__post_init__``) and its sentence of documentation (in the docstring). The constructor of the
module takes the same fields as arguments:

    layer = DS4D(256, d_state=64, max_delay=1024)
    layer.config                          # DS4DConfig(d_model=256, d_state=64, max_delay=1024, ...)
    layer.config.build()                  # the same module, freshly initialised
    Config.from_dict(layer.config.to_dict()) == layer.config
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import reprlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from types import UnionType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import nn

P = ParamSpec("P")
C = TypeVar("C", bound="Config")
Device = torch.device | str | int | None


@dataclass(frozen=True)
class Config:
    """Base of all configurations.

    >>> layer = DS4D(8, d_state=16, max_delay=100)
    >>> content = layer.config.to_dict()
    >>> content["kind"], content["max_delay"]
    ('DS4D', 100)
    >>> Config.from_dict(content) == layer.config
    True
    >>> another = layer.config.build()  # a module of the same kind, with new parameters

    Subclasses are frozen dataclasses whose names end in "Config". Their fields hold numbers, strings, booleans, None,
    other configurations, and tuples of these.
    """

    def __post_init__(self) -> None:
        """Make sure that every field is of its type. Subclasses call this first, and then check the values."""
        types = _types(type(self))  # type: ignore[arg-type]
        for field in fields(self):
            value = _to_python(getattr(self, field.name))
            if not _is_of_type(value, types[field.name]):
                expected = inspect.formatannotation(types[field.name])
                raise TypeError(f"option {field.name} of {_kind(type(self))} must be of type {expected}, not {value!r}")
            object.__setattr__(self, field.name, _to_float(value) if types[field.name] is float else value)

    @abstractmethod
    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> nn.Module:
        """Return a new module with this configuration, freshly initialised."""

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON-able values; ``kind`` names the module."""
        return {
            "kind": _kind(type(self)),
            **{field.name: _to_plain(getattr(self, field.name)) for field in fields(self)},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the configuration that `to_dict` described. Options that are not mentioned have their defaults."""
        kinds = {_kind(known): known for known in _subclasses(cls) if known is not Config}
        kind = content.get("kind") if isinstance(content, Mapping) else None
        if kind not in kinds:
            raise ValueError(f"no configuration is called {kind!r} here; there are {', '.join(sorted(kinds))}")
        known = kinds[kind]
        options = {name: _from_plain(value) for name, value in content.items() if name != "kind"}
        names = {field.name: field for field in fields(known)}
        if unknown := sorted(options.keys() - names):
            raise ValueError(f"{kind} has no option {', '.join(unknown)}; its options are {', '.join(names)}")
        required = [name for name, field in names.items() if field.default is MISSING and name not in options]
        if required:
            raise ValueError(f"the configuration of {kind} lacks {', '.join(required)}")
        try:
            return known(**options)
        except TypeError as error:
            raise ValueError(str(error)) from None

    def narrow(self, to: type[C]) -> C:
        """Return the fields that a base class declares as a configuration of that class."""
        assert isinstance(self, to)
        return to(**{field.name: getattr(self, field.name) for field in fields(to)})

    def __str__(self) -> str:
        """Return the fields as the arguments of a constructor; long lists of numbers are cut short."""
        return ", ".join(f"{field.name}={reprlib.repr(getattr(self, field.name))}" for field in fields(self))


@dataclass(frozen=True, kw_only=True)
class Factory:
    """The arguments of torch's own modules that say where parameters are made, and in which precision.

    Args:
        device: Device of the parameters; None: torch's default.
        dtype: Precision of the parameters; None: torch's default.
    """

    device: Device = None
    dtype: torch.dtype | None = None


def constructor(
    arguments: Callable[P, Config],
) -> Callable[[Callable[[Any, Any, Device, torch.dtype | None], None]], Callable[Concatenate[Any, P], None]]:
    """Turn ``__init__(self, config, device, dtype)`` into one that takes the fields of the configuration as arguments.

    `arguments` is a configuration with the fields of `Factory` added. The resulting constructor also takes a ready
    configuration as its only positional argument.
    """
    assert isinstance(arguments, type)
    config_class = arguments.__bases__[0]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    factory = [field.name for field in fields(Factory)]
    options = inspect.signature(arguments).parameters
    last = [options[name] for name in factory]
    signature = inspect.Signature([own, *(p for name, p in options.items() if name not in factory), *last])

    def decorate(
        initialise: Callable[[Any, Any, Device, torch.dtype | None], None],
    ) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(initialise)
        def take_fields(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            placed: dict[str, Any] = {name: kwargs.pop(name, None) for name in factory}
            if args and isinstance(args[0], config_class):
                if len(args) > 1 or kwargs:
                    raise TypeError(
                        f"{type(self).__name__} takes a configuration alone; for other options use dataclasses.replace"
                    )
                config: Any = args[0]
            else:
                try:
                    bound = signature.bind(self, *args, **kwargs)
                except TypeError as error:
                    raise TypeError(f"{type(self).__name__}: {error}; its options are {', '.join(options)}") from None
                bound.arguments.pop("self")
                config = config_class(**bound.arguments)
            initialise(self, config, placed["device"], placed["dtype"])

        take_fields.__signature__ = signature  # type: ignore[attr-defined]
        first = "Make the module from its options, or from its configuration alone."
        take_fields.__doc__ = f"{first}\n\nArgs:\n{_documentation(config_class)}"
        return take_fields

    return decorate


def _documentation(config_class: type) -> str:
    """Return what docstrings say of the fields of a configuration, those of its bases first, and of `Factory`."""
    sections = []
    for cls in (*reversed(config_class.__mro__), Factory):
        _, found, section = (inspect.cleandoc(cls.__dict__.get("__doc__") or "")).partition("Args:\n")
        if found:
            sections.append(section.rstrip())
    return "\n".join(sections)


@functools.cache
def _types(config_class: type) -> dict[str, Any]:
    return get_type_hints(config_class)


def _kind(config_class: type[Config]) -> str:
    return config_class.__name__.removesuffix("Config")


def _subclasses(cls: type[C]) -> Iterator[type[C]]:
    """Yield a configuration class and all that derive from it, but not the arguments of constructors."""
    if not issubclass(cls, Factory):
        yield cls
        for derived in cls.__subclasses__():
            yield from _subclasses(derived)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    return [_to_plain(item) for item in value] if isinstance(value, tuple) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Config.from_dict(value)
    return tuple(_from_plain(item) for item in value) if isinstance(value, list) else value


def _to_python(value: Any) -> Any:
    """Return numbers of other libraries as Python's own."""
    if isinstance(value, tuple | list):
        return tuple(map(_to_python, value))
    if isinstance(value, bool | int | float) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _to_float(value: Any) -> float:
    """Return a number as a float; whole numbers beyond all floats become infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_of_type(value: Any, hint: Any) -> bool:
    """Return whether a value is of an annotated type; which of the words of a `Literal` it is, is left to checks."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_is_of_type(value, one) for one in arguments)
    if origin is Literal:
        return isinstance(value, type(arguments[0]))
    if origin is tuple:
        each = arguments[:1] * len(value) if isinstance(value, tuple) and arguments[-1] is ... else arguments
        return isinstance(value, tuple) and len(value) == len(each) and all(map(_is_of_type, value, each))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def differences(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """Return in words where two configurations, as dictionaries, differ."""
    there, here = dict(_leaves(theirs)), dict(_leaves(mine))
    names = [name for name in {**there, **here} if there.get(name, MISSING) != here.get(name, MISSING)]
    shown = [f"{name} is {there.get(name, 'absent')} there and {here.get(name, 'absent')} here" for name in names[:5]]
    return "; ".join(shown) + (f"; and {len(names) - 5} more" if len(names) > 5 else "")


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    nested = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if nested is None:
        yield name, value
    else:
        for key, inner in nested:
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
