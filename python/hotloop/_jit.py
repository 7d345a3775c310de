"""jit and what tells about compiled functions."""

import functools
import inspect
import operator
import pickle
import sys
from collections.abc import Iterable

from hotloop import _core
from hotloop._op import function, integer


def _positions(fn, argnums, argnames, option="static_argnames"):
    """The arguments that an option names, by position and by name, each also the other way."""
    numbers = "static_argnums" if option == "static_argnames" else option
    argnums = [integer("jit", f"a position in {numbers}", n) for n in (argnums if isinstance(argnums, (tuple, list, set, frozenset, range)) else [argnums])]
    argnames = (argnames,) if isinstance(argnames, str) or not isinstance(argnames, Iterable) else tuple(argnames)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # of builtin functions
        parameters = [inspect.Parameter(kind.name.lower(), kind) for kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    has_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    has_rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters}
    for name in argnames:
        if not isinstance(name, str) or (name not in known and not has_rest):
            raise _core.UserError(f"[jit] {option} must be parameters of the function. Received: {name!r}. Try: one of {sorted(known)}.")
    for n in argnums:
        if n < 0 and has_more:
            raise _core.UserError(f"[jit] {numbers} of a function that takes any number of arguments must be counted from the first. Received: {n}.")
        if not (-len(names) <= n and (n < len(names) or has_more)):
            raise _core.UserError(f"[jit] {numbers} must be positions of the function's {len(names)} parameters. Received: {n}. Try: their names.")
    positions = {n % len(names) if n < 0 else n for n in argnums} | {names.index(n) for n in argnames if n in names}
    return sorted(positions), sorted(set(argnames) | {names[p] for p in positions if p < len(names)})


def _donated(fn, donate, static_positions, static_names):
    """The donated arguments, as _positions gives them."""
    given = (donate,) if isinstance(donate, int | str) else tuple(donate)
    for name in given:
        if isinstance(name, bool) or not isinstance(name, int | str):
            raise _core.UserError(f"[jit] donate takes names or numbers of arguments. Received: {name!r}. Try: donate=('params', 'state').")
    positions, names = _positions(fn, [n for n in given if isinstance(n, int)], [n for n in given if isinstance(n, str)], "donate")
    both = set(positions) & set(static_positions) or set(names) & set(static_names)
    if both:
        raise _core.UserError(f"[jit] an argument is static or donated, not both. Received: {sorted(both)}.")
    return positions, names


def jit(
    fn=None,
    /,
    *,
    static_argnums=(),
    static_argnames=(),
    donate=(),
    device="auto",
    threads=None,
    backend="llvm",
    target="host",
    disabled_passes=(),
    keep_source=False,
    dispatch="fused",
    dot_precision="float32",
    flush_denormals=None,
):
    """fn, written with hotloop's functions, compiled as one program for each combination of argument types it meets.

    fn: takes and returns arrays, in dicts, lists, tuples, named tuples or dataclasses. It is called to trace it, once for each
        combination of structure, shapes, dtypes and static arguments; so it must do nothing but compute.
    static_argnums, static_argnames: arguments that the program is compiled for, compared by all that they hold (types, bits of floats, the order of
        dicts, fields of dataclasses); objects with a hash of their own by ==, functions and plain objects by identity. The others must be
        arrays or numbers.
    donate: names or numbers of arguments whose memory a call may reuse: `hl.jit(step, donate=("params", "state"))`. A call consumes
        the arrays in them: a result of the same shape and dtype is computed into their memory where the program lets it (an update
        of the same elements, the carry of a loop; explain() tells which), and what no result took is free for the next call. After
        that any use of such an array raises. They must be hotloop.Arrays that nothing else views: not NumPy's, PyTorch's or JAX's
        memory, and no numpy.asarray(x) of them may be alive; else the call raises before it takes anything, as it does without memory for its
        results. Numbers in donated trees are passed as ever. Inside another compiled function nothing is donated. A call that is interrupted, or finds no
        memory while its program runs, has taken its arguments.
    device: "cpu"; "cuda", the first GPU of that make, where the whole program is one launch: arguments go there and results come back with each
        call, the same to the bit but for sums over a batch, and neither backend nor target nor dispatch is taken (docs/gpu.md); or "auto", whichever
        an estimate of both says, which explain() tells. UserError saying what is missing where "cuda" is not to be had.
    threads: of the processor, at most so many; None or 0: as many as there are cores. A call takes those whose share of the work is worth waking them
        for, which explain() tells. Results are the same bits for any number.
    backend: "llvm", "c" or "interp" (the slow definition of all results).
    target: of the instructions that this machine has, those to use: "host", all of them; "amx", which differs from "avx512" in dots in bfloat16; "avx512",
        "avx2" or "neon" (AArch64); "portable", whose bits are the same on every processor, without fused multiply-add.
    dispatch: "fused" makes the whole program one kernel. "per_op" compiles and launches every op on its own and runs loops from
        the host, as frameworks do that dispatch op by op: to measure what fusion is worth, see explain().
    dot_precision: "bfloat16" rounds the factors of float32 dots (8 significant bits); their products are added in float32, and all
        else stays float32. A training step takes 1.4 to 1.8 times less on AMD's processors from Zen 4 on, 1.4 to 5.0 times on Intel's with AMX, and more
        elsewhere; explain() says which.
    flush_denormals: True counts numbers below the normal range (1.2e-38 in float32, 2.2e-308 in float64) as 0 in arithmetic, which some processors
        compute with many times more slowly; on a GPU those of float32 alone. None: where a loop runs from its last step to its first, as gradients of
        recurrences do, which vanish over many steps. See docs/precision.md. Other code of the same threads is not affected.

    A call gives finished results, as Array. Programs stay in memory as long as the function does. What the function reads from
    outside (arrays of a closure, module variables) is read when it is traced, and arrays are kept as they were then.
    `hl.logs.enable()` shows each compilation and its reason.
    """
    if fn is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate=donate,
            device=device,
            threads=threads,
            backend=backend,
            target=target,
            disabled_passes=disabled_passes,
            keep_source=keep_source,
            dispatch=dispatch,
            dot_precision=dot_precision,
            flush_denormals=flush_denormals,
        )
    function("jit", "what is compiled", fn)
    positions, names = _positions(fn, static_argnums, static_argnames)
    options = _core.options(device, threads, backend, target, list(disabled_passes), keep_source, dispatch, dot_precision, flush_denormals)
    compiled = _core.jit(fn, getattr(fn, "__name__", type(fn).__name__), positions, names, None, options, *_donated(fn, donate, positions, names))
    return functools.update_wrapper(compiled, fn)


def _reduced(compiled):
    """Pickled as Python's functions are: by module and name, under which whoever reads the pickle has the same one."""
    module, name = getattr(compiled, "__module__", None), getattr(compiled, "__qualname__", None)
    try:
        found = operator.attrgetter(name)(sys.modules[module])
    except (AttributeError, KeyError, TypeError):
        found = None
    if found is not compiled:
        raise pickle.PicklingError(
            f"[jit] a compiled function is pickled by its name, as Python's functions are, and must be found under it. Received: {compiled!r}, "
            f"which {f'is not {module}.{name}' if name else 'has none'}. Try: @hl.jit above a function of a module, or pickle what it is made of and compile that where it is read."
        )
    return name


_core.CompiledFunction.__reduce__ = _reduced
_core.CompiledFunction.__copy__ = lambda self: self
_core.CompiledFunction.__deepcopy__ = lambda self, memo: self


def _compiled(fn):
    return fn if isinstance(fn, _core.CompiledFunction) else jit(function("jit", "what is compiled", fn))


def executable(fn, /, *args, **kwargs):
    """The program of jit(fn) for these arguments, compiled if it was not yet: .explain(), .graph_text(), .kernel_text(), .source()."""
    return _core.executable_for(_compiled(fn), *args, **kwargs)


def explain(fn, /, *args, **kwargs):
    """What was compiled of fn for these arguments, as text: kernels, loops, what was merged, hoisted and deferred, bytes, flops,
    and times as far as it has run. fn may be compiled already or not; it is not run."""
    return executable(fn, *args, **kwargs).explain()


def profile(fn, /, *args, **kwargs):
    """Where the time of fn(*args, **kwargs) goes, measured statement by statement inside its one kernel; print it.

    The program is called for half a second, three times at least, by one worker: in turns as it is, and as a copy of it, compiled for this, that reads a
    clock after each statement. Nothing is consumed. .statements, longest first, have .statement (a name and extents: "dot scan.10 32 x 128 of 32" is 32 rows and
    128 columns of 32 steps), and of all runs in one call, on the average, .time_us, .runs, .flops of products and .elements of others; .call_us is
    what they take together, .without_clocks_us a call of the program as it is, .num_calls how many of each were measured; .met_denormals whether numbers
    below the normal range came up that the program does not count as 0 (jit's flush_denormals), with which some processors compute many times more slowly.
    Reading the clock takes some ten nanoseconds, so that of statements of less than 0.1 us times are rough. UserError for a
    program that is not one kernel for the processor: of device "cuda", dispatch "per_op", backend "c" or "interp".
    """
    return _core.profile_of(_compiled(fn), *args, **kwargs)
