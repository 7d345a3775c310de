"""A class for each layer of the engine's registry."""

from hotloop import _core
from hotloop._components import NO_SETTING, bind, class_name, docstring, repr_of, set_attribute, setting_of, signature
from hotloop._names import kind_of
from hotloop.nn._modules import Module

_NOTES = {
    "ode": "The layers are given y alone: dy/dt = layers(y), without t. For an equation that depends on time y holds t as one number more, whose derivative is 1 "
    "(docs/python_ode.md), or hl.ode.solve takes a function field(t, y, args).",
}  # fmt: skip
_FIRST = {"inputs": "features of the input, its last axis.", "layer": "the layer inside."}


def _layer_class(definition, sized, wraps):
    name, summary, parameters = definition
    first = ["inputs"] if sized else ["layer"] if wraps else []
    sig = signature(parameters, first)

    def __init__(self, *args, **kwargs):
        self._settings = bind(type(self), sig, args, kwargs)
        self._layer  # noqa: B018  (made now, so that a setting that does not fit is refused here)

    def _make(self):
        settings = dict(self._settings)
        if not wraps:
            inputs = settings.pop("inputs", None)
            return _core.make_layer(name, settings, inputs)
        inner = settings.pop("layer")
        if not isinstance(inner, Module):
            raise _core.UserError(f"[{name}] what is wrapped must be a layer. Received: {kind_of(inner)}.")
        return _core.wrap_layer(name, settings, inner._layer)

    def __getattr__(self, name):
        value = setting_of(self, name)
        return Module.__getattr__(self, name) if value is NO_SETTING else value

    body = {
        "__init__": __init__,
        "__getattr__": __getattr__,
        "__setattr__": set_attribute,
        "_make": _make,
        "__repr__": repr_of,
        "__signature__": sig,
        "__doc__": docstring(summary, parameters, [(f, _FIRST[f]) for f in first]) + (f"\n\n{_NOTES[name]}" if name in _NOTES else ""),
        "__module__": "hotloop.nn",
    }
    return type(class_name(name), (Module,), body)


LAYERS = {}
for _definition, _sized, _wraps in _core.layer_definitions():
    _cls = _layer_class(_definition, _sized, _wraps)
    LAYERS[_cls.__name__] = _cls
