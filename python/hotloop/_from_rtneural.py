"""RTNeural's JSON files as models and parameters."""

import os

from hotloop import _core, nn
from hotloop._components import class_name
from hotloop.nn._layers import LAYERS


def from_rtneural(file):
    """(model, params) of a JSON file of RTNeural: (batch, time, features) -> (batch, time, outputs).

    dense, time-distributed-dense, gru, lstm, conv1d, prelu, batchnorm and activation (tanh, relu, sigmoid, softmax, elu). The weights of dense or
    conv1d take in a batchnorm that follows. What cannot be read is named, all of it at once. `hl.export_c(model, params, features)` writes it as
    plain C, `model.bind(params).step` runs it a step at a time.
    """
    layers, params = [], {}
    for kind, settings, inputs, arrays in _core.read_rtneural(os.fspath(file))[0]:
        cls = LAYERS[class_name(kind)]
        if arrays:
            params[str(len(layers))] = arrays
        layers.append(cls(inputs, **settings) if "inputs" in cls.__signature__.parameters else cls(**settings))
    return nn.Sequential(*layers), params
