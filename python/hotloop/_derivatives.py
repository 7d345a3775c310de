"""Derivatives along many directions: dense Jacobians and Hessians, products with curvature matrices, per-sample gradients, and
Jacobians that know their structure.

Derivatives are taken of float32 and float64 values; an integer argument or result is a UserError. All go through scan,
while_loop, every layer and hl.ode.solve, and compose with jit, vmap, grad and themselves.
"""

import dataclasses
import typing

import numpy

from hotloop import _core
from hotloop._control import run_traced
from hotloop._names import kind_of
from hotloop._op import function, op
from hotloop._transforms import (
    _argnums,
    _flat,
    _grad,
    _is_float,
    _jvp,
    _like,
    _name,
    _traced_or_twice,
    _transformed,
    _vmap,
    _zeros,
    checked_directions,
    checked_floats,
    differentiated,
    vmap,
)

__all__ = [
    "jvp_many", "vjp_many", "jacfwd", "jacrev", "jacobian", "Jacobian", "CSR", "COO", "hessian", "sparse_hessian", "hessian_diagonal", "hvp",
    "gauss_newton_vp", "fisher_vp", "per_sample_grad", "laplacian", "rtrl",
]  # fmt: skip


# ---- many directions -----------------------------------------------------------------------------------------------------------


def jvp_many(fn, primals, tangents):
    """(fn(*primals), its derivatives along K directions): jvp with a leading axis K on each tangent and derivative.

    primals, tangents: tuples of trees of one structure. What does not depend on the direction is computed once.
    """
    return run_traced(_name(fn), lambda p, t: _jvp_many(fn, p, t), *checked_directions("jvp_many", fn, primals, tangents))


def _jvp_many(fn, primals, tangents):
    leaves, structure = _core.tree_flatten(primals)
    directions = structure.flatten_like(tangents, "jvp_many")
    directions = [_core.cast(d, _core.to_tracer(x).dtype) if _is_float(x) else None for d, x in zip(directions, leaves)]
    keep = {}
    outputs, derivatives = _core.jvp_many(differentiated(_flat(fn, structure, keep)), leaves, directions)
    (count,) = {d.shape[0] for d in directions if d is not None} or {0}
    derivatives = [_core.full(0.0, y.dtype, (count, *y.shape)) if d is None else d for y, d in zip(outputs, derivatives)]
    return keep["out"].unflatten(outputs), keep["out"].unflatten(derivatives)


def vjp_many(fn, *primals):
    """(fn(*primals), pullback) along K directions: vjp with a leading axis K on each cotangent, given and returned."""
    return _traced_or_twice(_vjp_many, fn, primals)


def _vjp_many(fn, *primals):
    leaves, structure = _core.tree_flatten(primals)
    keep = {}
    outputs, flat_pullback = _core.vjp_many(differentiated(_flat(fn, structure, keep)), leaves)
    out = keep["out"]

    def pullback(cotangents):
        """Cotangents of the arguments, each with a leading axis K."""
        given = out.flatten_like(cotangents, "vjp_many")
        given = [_core.cast(ct, y.dtype) if _is_float(y) else None for ct, y in zip(given, outputs)]
        return structure.unflatten(flat_pullback(given))

    return out.unflatten(outputs), pullback


# ---- functions of some arguments -----------------------------------------------------------------------------------------------


class _Wanted:
    """fn as a flat function of the arguments named by argnums; the others are as they were given."""

    def __init__(self, where, fn, argnums, args, kwargs):
        self.nums = _argnums(where, argnums, args)
        self.single = isinstance(argnums, int)
        self.leaves, self.structure = checked_floats(where, self.nums, args)
        self.out = None
        self._fn, self._args, self._kwargs = fn, args, kwargs

    def flat(self, leaves):
        """Leaves of the result, whose structure is then `out`."""
        given = list(self._args)
        for n, value in zip(self.nums, self.structure.unflatten(leaves)):
            given[n] = value
        result, self.out = _core.tree_flatten(self._fn(*given, **self._kwargs))
        return result

    def positions(self):
        """Of all leaves."""
        return list(range(len(self.leaves)))

    def unflatten(self, leaves):
        """As the argument that was named, or a tuple of those."""
        trees = self.structure.unflatten(leaves)
        return trees[0] if self.single else trees

    def nested(self, rows):
        """A tree like the result of trees like the argument."""
        return self.out.unflatten([self.unflatten(row) for row in rows])


def _rows(flat, width):
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def _dense(name, fn, argnums, doc):
    def traced(*args, **kwargs):
        wanted = _Wanted(name, fn, argnums, args, kwargs)
        blocks = getattr(_core, name)(wanted.flat, wanted.positions(), wanted.leaves)
        return wanted.nested(_rows(blocks, len(wanted.leaves)))

    return _transformed(fn, traced, doc)


def jacfwd(fn, argnums=0):
    """d fn / d argument in forward mode, one pass an element of the argument: arrays of shape result + argument.

    Argument and result may be trees: the result is a tree like fn's result of trees like the argument (of tuples, for several
    argnums). For few inputs and many outputs; jacobian() chooses by itself, and uses zeros.
    """
    return _dense("jacfwd", fn, argnums, f"The Jacobian of {_name(fn)}.")


def jacrev(fn, argnums=0):
    """d fn / d argument in reverse mode, one pass an element of the result; otherwise as jacfwd. For many inputs and few outputs."""
    return _dense("jacrev", fn, argnums, f"The Jacobian of {_name(fn)}.")


def hessian(fn, argnums=0):
    """The second derivatives of a scalar function, forward over reverse: arrays of shape argument + argument.

    For a tree, a tree of trees: [i][j] is d^2 fn / d x_i d x_j. hvp() multiplies by it without computing it; sparse_hessian() and
    hessian_diagonal() use its zeros.
    """

    def traced(*args, **kwargs):
        wanted = _Wanted("hessian", fn, argnums, args, kwargs)
        blocks = _core.hessian(wanted.flat, wanted.positions(), wanted.leaves)
        return wanted.unflatten([wanted.unflatten(row) for row in _rows(blocks, len(wanted.leaves))])

    return _transformed(fn, traced, f"The Hessian of {_name(fn)}.")


# ---- curvature -----------------------------------------------------------------------------------------------------------------


def hvp(fn, x, v):
    """Hessian of the scalar function fn at x, times v: the jvp of its gradient. x and v are trees of one structure."""
    return run_traced("hvp", lambda x, v: _jvp(_grad(fn, 0, False, "hvp"), (x,), (v,), "hvp")[1], x, v)


def _product(name, traced, x, v):
    def run(x, v):
        leaves, structure = _core.tree_flatten(x)
        leaves = [_core.to_tracer(leaf) for leaf in leaves]
        vectors = [_like(d, leaf) if _is_float(leaf) else None for d, leaf in zip(structure.flatten_like(v, name), leaves)]
        products = traced(structure, leaves, vectors)
        return structure.unflatten([_zeros(leaf) if p is None else p for leaf, p in zip(leaves, products)])

    return run_traced(name, run, x, v)


def gauss_newton_vp(model, loss, x, v):
    """J^T H J v, J the Jacobian of model at x and H the Hessian of loss at model(x): a tree like x (Schraudolph 2002).

    model(x) -> outputs, any tree; loss(outputs) -> scalar. Positive semi-definite when loss is convex; for the negative
    log-likelihood of an exponential family in its natural parameters this is the Fisher matrix of the model.
    """

    function("gauss_newton_vp", "the model", model)
    function("gauss_newton_vp", "the loss", loss)

    def traced(structure, leaves, vectors):
        keep = {}
        flat_model = _flat(lambda x: model(x), _tuple_of(structure), keep)
        return _core.gauss_newton_vp(differentiated(flat_model), lambda outputs: [loss(keep["out"].unflatten(outputs))], leaves, vectors)

    return _product("gauss_newton_vp", traced, x, v)


def fisher_vp(fn, x, v):
    """(1/N) sum_n g_n g_n^T v, g_n the gradient of fn(x)[n], the losses of N samples: the empirical Fisher matrix times v."""

    function("fisher_vp", "what is differentiated", fn)

    def traced(structure, leaves, vectors):
        return _core.fisher_vp(differentiated(_flat(lambda x: fn(x), _tuple_of(structure), {})), leaves, vectors)

    return _product("fisher_vp", traced, x, v)


class _tuple_of:  # noqa: N801  (stands for a structure)
    """The structure of (tree,)."""

    def __init__(self, structure):
        self._structure = structure

    def unflatten(self, leaves):
        return (self._structure.unflatten(leaves),)


def per_sample_grad(fn, argnums=0, in_axes=None):
    """The gradient of fn, a scalar for one sample, for each of N samples: trees like the argument with a leading axis N.

    in_axes: as in vmap; None: the arguments named by argnums are shared, as parameters are, and the others hold a sample a row.
    """

    def traced(*args):
        axes = in_axes
        if axes is None:
            nums = _argnums("per_sample_grad", argnums, args)
            axes = tuple(None if i in nums else 0 for i in range(len(args)))
        return _vmap(_grad(fn, argnums, False, "per_sample_grad"), axes, 0, "per_sample_grad")(*args)

    return _transformed(fn, traced, f"The gradients of {_name(fn)}, sample by sample.")


def laplacian(fn, argnums=0):
    """sum_i d^2 fn / d x_i^2 of a scalar function, over all elements of the argument: a scalar. vmap it over points."""

    def traced(*args, **kwargs):
        wanted = _Wanted("laplacian", fn, argnums, args, kwargs)
        parts = [_core.laplacian(wanted.flat, i, wanted.leaves) for i in wanted.positions()]
        return sum(parts[1:], start=parts[0])

    return _transformed(fn, traced, f"The Laplacian of {_name(fn)}.")


def rtrl(step):
    """Real-time recurrent learning (Williams and Zipser 1989): gradients online, forward in time, in memory that does not grow with it.

    step(params, state, *rest) -> (state, loss). The result is a function
        (params, state, sensitivities, *rest) -> (state, loss, sensitivities, gradients)
    where sensitivities, d state / d params, is a tree like the state with a leading axis of as many elements as params has; None before
    the first step. gradients are this step's, a tree like params.
    """

    def traced(params, state, sensitivities, *rest):
        (p, p_structure), (s, s_structure), (r, r_structure) = (_core.tree_flatten(t) for t in (params, state, rest))
        p, s = [_core.to_tracer(x) for x in p], [_core.to_tracer(x) for x in s]
        size = sum(x.size for x in p)
        if sensitivities is None:
            given = [_core.full(0.0, x.dtype, (size, *x.shape)) for x in s]
        else:
            given = s_structure.flatten_like(sensitivities, "rtrl")

        def flat(leaves):
            values = leaves[: len(p)], leaves[len(p) : len(p) + len(s)], leaves[len(p) + len(s) :]
            result = step(p_structure.unflatten(values[0]), s_structure.unflatten(values[1]), *r_structure.unflatten(values[2]))
            if not isinstance(result, tuple) or len(result) != 2:
                raise _core.UserError(f"[rtrl] step must return (state, loss). Received: {kind_of(result)}.")
            return [*s_structure.flatten_like(result[0], "rtrl"), result[1]]

        out = _core.rtrl(flat, len(p), len(s), [*p, *s, *given, *r])
        n = len(s)
        return s_structure.unflatten(out[:n]), out[n], s_structure.unflatten(out[n + 1 : 2 * n + 1]), p_structure.unflatten(out[2 * n + 1 :])

    return _transformed(step, traced, f"A step of {_name(step)}, and the gradient of its loss.")


# ---- with structure ------------------------------------------------------------------------------------------------------------


class CSR(typing.NamedTuple):
    """A sparse matrix by rows: row i has data[indptr[i]:indptr[i+1]] at the columns indices[indptr[i]:indptr[i+1]]."""

    data: typing.Any
    indices: typing.Any
    indptr: typing.Any


class COO(typing.NamedTuple):
    """A sparse matrix by elements: data[k] at (row[k], col[k])."""

    data: typing.Any
    row: typing.Any
    col: typing.Any


@op(2)
def _part(values, operand, structure, name, /):
    def one(values, operand):
        return _core.jacobian_part(name, structure, values, operand)

    shapes = {"matvec": structure.input_shape, "rmatvec": structure.output_shape}
    values = _core.to_tracer(values)
    batch = values.ndim - len(structure.values_shape)
    if operand is not None:
        operand = _core.to_tracer(operand)
        if operand.shape not in (shapes[name], values.shape[:batch] + shapes[name]):
            raise _core.UserError(
                f"[jacobian] what is multiplied must have the shape {shapes[name]} of {'x' if name == 'matvec' else 'y'}. Received: {operand.shape}."
            )
    for level in range(batch):
        shared = operand is None or operand.ndim - len(shapes[name]) <= level
        one = vmap(one, in_axes=(0, None if shared else 0)) if operand is not None else _over_values(one)
    return one(values, operand)


def _over_values(one):
    return lambda values, operand: vmap(lambda v: one(v, operand))(values)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Jacobian:
    """dy/dx with its structure: a tree with the one leaf `values`, the stored elements, so that it goes through jit, vmap and scan.

    From vmap come stored elements with leading axes, and so do all that is made of them.
    """

    values: typing.Any
    structure: typing.Any = dataclasses.field(metadata={"static": True})

    def _get(self, name, operand=None):
        return _part(self.values, operand, self.structure, name)

    @property
    def shape(self):
        """y.shape + x.shape, after the axes of vmap."""
        batch = self.values.ndim - len(self.structure.values_shape)
        return tuple(self.values.shape[:batch]) + self.structure.output_shape + self.structure.input_shape

    @property
    def ndim(self):
        """Number of axes of dense()."""
        return len(self.shape)

    @property
    def dtype(self):
        """NumPy dtype of the elements."""
        return self.values.dtype

    @property
    def blocks(self):
        """One block for each index along the paired axes: (paired axes..., other axes of y..., other axes of x...)."""
        return self._get("blocks")

    def dense(self):
        """The whole array, y.shape + x.shape, zeros included. UserError, naming sizes, if it would not fit into memory."""
        return self._get("dense")

    def diagonal(self):
        """d y[i] / d x[i] where y and x have one shape: that shape."""
        return self._get("diagonal")

    def sparse(self, format="csr"):
        """The matrix (y.size, x.size) of the stored elements, some of which may be zero: format "csr" or "coo".

        A SciPy sparse array where SciPy is installed and there are numbers; in a trace, of a batch and without SciPy, arrays: CSR or COO.
        """
        if format not in ("csr", "coo"):
            raise _core.UserError(f"[jacobian] format must be 'csr' or 'coo'. Received: {format!r}.")
        s, data = self.structure, self._get("sparse")
        parts = CSR(data, s.column_indices(), s.indptr()) if format == "csr" else COO(data, s.row_indices(), s.column_indices())
        if _core.is_tracer(data) or data.ndim > 1:
            return parts
        try:
            import scipy.sparse
        except ImportError:
            return parts
        shape = (int(numpy.prod(s.output_shape, dtype=int)), int(numpy.prod(s.input_shape, dtype=int)))
        first, *indices = (numpy.asarray(part) for part in parts)
        if format == "csr":
            return scipy.sparse.csr_array((first, *indices), shape=shape)
        return scipy.sparse.coo_array((first, tuple(indices)), shape=shape)

    def matvec(self, v):
        """J v, as J @ v: v of x's shape -> y's shape."""
        return self._get("matvec", v)

    def rmatvec(self, u):
        """J^T u, as J.T @ u: u of y's shape -> x's shape."""
        return self._get("rmatvec", u)

    __matmul__ = matvec

    @property
    def T(self):  # noqa: N802
        """The transpose: T @ u is J^T u."""
        return _Transposed(self)

    def explain(self):
        """Structure, mode, number of passes, cost, and what dense would have cost."""
        return self.structure.explain()

    def __array__(self, dtype=None, copy=None):
        return numpy.asarray(self.dense(), dtype=dtype)

    def __repr__(self):
        s = self.structure
        kind = "sparse" if s.is_sparse else "dense"
        return f"Jacobian(shape={self.shape}, dtype={self.dtype}, {s.num_blocks} {kind} blocks of {s.num_rows} x {s.num_columns})"


@dataclasses.dataclass(frozen=True, eq=False)
class _Transposed:
    """The transpose of a Jacobian."""

    jacobian: Jacobian

    @property
    def T(self):  # noqa: N802
        """The Jacobian."""
        return self.jacobian

    @property
    def shape(self):
        """x.shape + y.shape, after the axes of vmap."""
        s = self.jacobian.structure
        batch = len(self.jacobian.shape) - len(s.output_shape) - len(s.input_shape)
        return self.jacobian.shape[:batch] + s.input_shape + s.output_shape

    def __matmul__(self, u):
        """J^T u: u of y's shape -> x's shape."""
        return self.jacobian.rmatvec(u)

    def dense(self):
        """The whole array, x.shape + y.shape."""
        from hotloop._manipulation import permute_dims

        s, whole = self.jacobian.structure, self.jacobian.dense()
        first_x, first_y = whole.ndim - len(s.input_shape), whole.ndim - len(s.input_shape) - len(s.output_shape)
        return permute_dims(whole, (*range(first_y), *range(first_x, whole.ndim), *range(first_y, first_x)))

    def __array__(self, dtype=None, copy=None):
        return numpy.asarray(self.dense(), dtype=dtype)


_DEFAULTS = _core.jacobian_defaults()


def _structured(where, fn, argnums, symmetric, options):
    def traced(*args, **kwargs):
        wanted = _Wanted(where, fn, argnums, args, kwargs)
        rows = []
        while wanted.out is None or len(rows) < (1 if symmetric else wanted.out.num_leaves):
            rows.append(
                [
                    Jacobian(values, structure)
                    for i in wanted.positions()
                    for structure, values in [_core.jacobian(differentiated(wanted.flat), wanted.leaves, i, len(rows), symmetric, **options)]
                ]
            )
        return wanted.unflatten(rows[0]) if symmetric else wanted.nested(rows)

    return _transformed(fn, traced, f"The {'Hessian' if symmetric else 'Jacobian'} of {_name(fn)}, with its structure.")


def jacobian(
    fn, argnums=0, *, mode=_DEFAULTS["mode"], sparsity=_DEFAULTS["sparsity"], max_detection_steps=_DEFAULTS["max_detection_steps"], max_bytes=_DEFAULTS["max_bytes"]
):
    """d fn / d argument as a Jacobian, which knows its zeros: they are found while fn is traced, and not computed.

    Axes along which fn treats elements alone (a batch, through loops and cells) make it block-diagonal; inside blocks, index sets are
    followed through the program, and columns or rows that do not overlap share a pass (colouring).
    mode: "auto" takes forward passes, reverse passes or some of both ("mixed"), whichever are cheaper; or one of "forward", "reverse".
    sparsity: whether to look for zeros inside blocks too. max_detection_steps: how long; what would take more is called dense.
    max_bytes: the most that dense() and blocks may come to; 0: the memory of this machine.
    Argument and result may be trees, as in jacfwd; each pair of leaves has a Jacobian of its own.
    """
    options = {"mode": mode, "sparsity": sparsity, "max_detection_steps": max_detection_steps, "max_bytes": max_bytes}
    return _structured("jacobian", fn, argnums, False, options)


def sparse_hessian(
    fn, argnums=0, *, mode=_DEFAULTS["mode"], sparsity=_DEFAULTS["sparsity"], max_detection_steps=_DEFAULTS["max_detection_steps"], max_bytes=_DEFAULTS["max_bytes"]
):
    """The second derivatives of a scalar function as a Jacobian, with star colouring; of a tree, the blocks d^2 fn / d x_i^2 alone.

    Options as in jacobian().
    """
    options = {"mode": mode, "sparsity": sparsity, "max_detection_steps": max_detection_steps, "max_bytes": max_bytes}
    return _structured("sparse_hessian", fn, argnums, True, options)


def hessian_diagonal(fn, argnums=0):
    """d^2 fn / d x_i^2 of a scalar function: a tree like the argument. Elements that are not coupled share a pass."""

    def traced(*args, **kwargs):
        wanted = _Wanted("hessian_diagonal", fn, argnums, args, kwargs)
        return wanted.unflatten([_core.hessian_diagonal(wanted.flat, i, wanted.leaves) for i in wanted.positions()])

    return _transformed(fn, traced, f"The diagonal of the Hessian of {_name(fn)}.")
