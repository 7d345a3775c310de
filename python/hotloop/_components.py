"""Classes made of the engine's registries: one for each layer, loss, optimiser, schedule and wrapper that it has."""

import inspect

from hotloop import _core
from hotloop._names import try_setting

class_name = _core.class_name  # "layer_norm" -> "LayerNorm", "lstm" -> "LSTM"


def signature(parameters, first=()):
    """The constructor's signature: `first`, what is required, and the rest with defaults."""
    P = inspect.Parameter
    made = [P(name, P.POSITIONAL_OR_KEYWORD) for name in first]
    ordered = sorted(parameters, key=lambda p: not p[3])
    for name, fallback, _, required, _ in ordered:
        made.append(P(name, P.POSITIONAL_OR_KEYWORD, default=P.empty if required else fallback))
    return inspect.Signature(made)


def docstring(summary, parameters, first=()):
    """What the class is, and each of its settings."""
    lines = [summary[:1].upper() + summary[1:] + ".", ""]
    lines += [f"{name}: {doc}" for name, doc in first]
    for name, fallback, doc, required, choices in parameters:
        of = f" One of {', '.join(choices)}." if choices else ""
        lines.append(f"{name}: {doc}.{of}" + ("" if required else f" Default {fallback!r}."))
    return "\n".join(lines).rstrip()


def bind(cls, sig, args, kwargs):
    """The arguments of a constructor by name; a TypeError that shows the signature otherwise."""
    try:
        bound = sig.bind(*args, **kwargs)
    except TypeError as error:
        # A required argument may be missing because it was given by the name that it has elsewhere.
        unknown = next((name for name in kwargs if name not in sig.parameters), None)
        error = f"got an unexpected keyword argument {unknown!r}" if unknown else error
        raise TypeError(f"{cls.__name__}{sig}: {error}{try_setting(error, list(sig.parameters))}") from None
    return dict(bound.arguments)


def repr_of(self):
    """Name and settings."""
    return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._settings.items())})"


NO_SETTING = object()


def setting_of(self, name):
    """The setting of this name that an object was made with, given or not; NO_SETTING where it has none."""
    signature = getattr(type(self), "__signature__", None)
    if signature is None or name not in signature.parameters or "_settings" not in self.__dict__:
        return NO_SETTING
    return self.__dict__["_settings"].get(name, signature.parameters[name].default)


def set_attribute(self, name, value):
    """Settings are read as attributes. What is compiled knows them already, so that a new value would be none."""
    if setting_of(self, name) is not NO_SETTING:
        made = type(self).__name__
        raise AttributeError(f"[{made}] settings do not change once it is made. Received: {name} = {value!r}. Try: hl.{type(self).__module__.partition('.')[2]}.{made}(..., {name}={value!r}).")
    object.__setattr__(self, name, value)


class Component:
    """What holds settings and the engine's object of them. Copies and pickles hold the settings, of which the object is made again."""

    _engine = ""  # the attribute that the engine's object is
    _make = None  # a method that gives it

    def __getattr__(self, name):
        value = setting_of(self, name)
        if value is NO_SETTING:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return value

    __setattr__ = set_attribute

    def _build(self):
        setattr(self, self._engine, self._make())

    def __getstate__(self):
        remade = self._engine if self._make else ""
        return {name: value for name, value in self.__dict__.items() if name != remade and not name.startswith("_compiled")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._make:
            self._build()


def component_class(base, definition, make, first=()):
    """A Component of the registry's definition: make(name, settings) gives the engine's object; `first`: (name, doc) of what the constructor takes
    before the settings."""
    name, summary, parameters = definition
    sig = signature(parameters, [f for f, _ in first])

    def __init__(self, *args, **kwargs):
        self._settings = bind(type(self), sig, args, kwargs)
        self._build()

    body = {
        "__init__": __init__,
        "_make": lambda self: make(name, dict(self._settings)),
        "__repr__": repr_of,
        "__signature__": sig,
        "__doc__": docstring(summary, parameters, first),
        "__module__": base.__module__,
    }
    return type(class_name(name), (base,), body)
