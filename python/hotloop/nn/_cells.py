"""Cells written in Python."""

import inspect

from hotloop import _core
from hotloop._names import kind_of
from hotloop.nn._modules import Module


class Cell:
    """One step of a recurrent network. A subclass has three functions, and hl.nn.Recurrent(cell) runs it over time:

        class Decay(hl.nn.Cell):
            def init(self, seed):
                return {"w": hl.nn.uniform(seed, (16, 3), -0.5, 0.5)}
            def initial_state(self, batch):
                return hl.zeros((batch, 16))
            def __call__(self, params, state, x):       # x (batch, features)
                h = 0.9 * state + hl.tanh(x @ params["w"].T)
                return h, h                              # (state, y)

    With several weights each has a seed of its own, hl.nn.fold_in(seed, "w"): one seed gives the same numbers each time.

    It is traced once, whatever the length of the sequence, into the same program as everything else, and has every derivative.
    """

    def init(self, seed):
        """Fresh parameters: a dict of arrays. May take a second argument, "torch" or "keras"."""
        return {}

    def _init_for_engine(self, seed, init):
        return self.init(seed, init) if len(inspect.signature(self.init).parameters) > 1 else self.init(seed)

    def initial_state(self, batch):
        """The state before the first step, each leaf (batch, ...)."""
        raise self._lacks("initial_state(self, batch)", ("init_state", "zero_state", "get_initial_state", "initialize_carry", "state"), "return hl.zeros((batch, units))")

    def __call__(self, params, state, x):
        """(state after the step, y)."""
        raise self._lacks("__call__(self, params, state, x)", ("step", "forward", "apply", "call"), "return state, y")

    def _lacks(self, wanted, elsewhere, body):
        came = next((f"{name}()" for name in elsewhere if hasattr(self, name)), "none")
        return _core.UserError(f"[{type(self).__name__}] a cell of your own must have {wanted}. Received: {came}. Try: def {wanted}: {body}.")


class Recurrent(Module):
    """Runs a cell over time: (batch, time, features) -> (batch, time, ...), with the cell's parameters and state."""

    def __init__(self, cell):
        if not isinstance(cell, Cell):
            raise _core.UserError(f"[Recurrent] what is run over time must be a Cell. Received: {kind_of(cell)}.")
        self.cell = cell

    def _make(self):
        return _core.recurrent(self.cell)

    def __repr__(self):
        return f"Recurrent({type(self.cell).__name__}())"
