"""ONNX Runtime on models that this file writes: its LSTM operator, input and output bound to memory of the caller."""

import numpy as np
from harness.prepared import Prepared, Unsupported

THREADS = 1


def setup(threads):
    global THREADS
    THREADS = threads


def versions():
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"


def _weights(inputs):
    """ONNX orders the gates i, o, f, c and holds both biases in one array."""

    def ordered(w):
        i, f, g, o = np.split(w, 4)
        return np.concatenate([i, o, f, g])

    w, r, bi, bh = (ordered(inputs[k + "_l0"]) for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return w[None], r[None], np.concatenate([bi, bh])[None]


def _session(sizes, inputs, steps, head):
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    b, i, h = sizes.get("B", 1), sizes["I"], sizes["H"]
    w, r, bias = _weights(inputs)
    constants = {"w": w, "r": r, "b": bias, "axis": np.array([1], np.int64)}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b", "", "h0", "c0"], ["ys", "h", "c"], hidden_size=h),
        helper.make_node("Squeeze", ["ys", "axis"], ["outputs"]),
    ]
    shape, result = [steps, b, h], "outputs"
    if head:
        constants |= {"wo": inputs["head.weight"].T.copy(), "bo": inputs["head.bias"]}
        nodes += [helper.make_node("MatMul", ["outputs", "wo"], ["product"]), helper.make_node("Add", ["product", "bo"], ["y"])]
        shape, result = [steps, b, 1], "y"
    tensor = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
    graph = helper.make_graph(
        nodes, "lstm", [tensor("x", [steps, b, i]), tensor("h0", [1, b, h]), tensor("c0", [1, b, h])],
        [tensor(result, shape), tensor("h", [1, b, h]), tensor("c", [1, b, h])], [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]), result, shape


def _bound(session, inputs, outputs):
    """To be run without RunOptions: with them a call of ONNX Runtime 1.31 takes 26 us more, whatever they say."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, array)
    for name, array in outputs.items():
        binding.bind_ortvalue_output(name, array)
    return binding


def recurrent_infer(sizes, inputs):
    import onnxruntime as ort

    if sizes["cell"] != "lstm" or sizes["layers"] != 1 or sizes["directions"] != 1:
        raise Unsupported("one layer of an LSTM in one direction")
    x = np.ascontiguousarray(inputs["x"].swapaxes(0, 1))
    session, result, shape = _session(sizes, inputs, sizes["T"], head=False)
    new = lambda shape: ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))  # noqa: E731
    state = [1, sizes["B"], sizes["H"]]
    out = new(shape)
    binding = _bound(
        session, {"x": ort.OrtValue.ortvalue_from_numpy(x), "h0": new(state), "c0": new(state)}, {result: out, "h": new(state), "c": new(state)}
    )
    call = lambda: session.run_with_iobinding(binding)  # noqa: E731
    call()
    return Prepared(call, {"outputs": out.numpy().swapaxes(0, 1).copy()}, note="IO binding")


def stream(sizes, inputs):
    """Two bindings, whose states are each other's inputs and outputs."""
    import onnxruntime as ort

    x = inputs["x"]
    session, result, shape = _session(sizes, inputs, 1, head=True)
    h = sizes["H"]
    states = [[ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, h), np.float32)) for _ in range(2)] for _ in range(2)]
    row, y = np.zeros((1, 1, x.shape[1]), np.float32), ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
    row_value, zero = ort.OrtValue.ortvalue_from_numpy(row), np.zeros((1, 1, h), np.float32)
    bindings = []
    for k in range(2):
        (h0, c0), (h1, c1) = states[k], states[1 - k]
        bindings.append(_bound(session, {"x": row_value, "h0": h0, "c0": c0}, {result: y, "h": h1, "c": c1}))
    rows = [np.ascontiguousarray(r[None, None]) for r in x]

    def run(keep=None):
        for s in states[0]:
            s.update_inplace(zero)
        for t, r in enumerate(rows):
            row_value.update_inplace(r)
            session.run_with_iobinding(bindings[t % 2])
            if keep is not None:
                keep.append(float(y.numpy().ravel()[0]))

    ys = []
    run(ys)
    return Prepared(run, {"y": np.array(ys)}, units=len(rows), note="IO binding")


def stream_sequence(sizes, inputs):
    import onnxruntime as ort

    x = np.ascontiguousarray(inputs["x"][:, None])
    session, result, shape = _session(sizes, inputs, len(x), head=True)
    new = lambda shape: ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))  # noqa: E731
    state, out = [1, 1, sizes["H"]], new(shape)
    binding = _bound(
        session, {"x": ort.OrtValue.ortvalue_from_numpy(x), "h0": new(state), "c0": new(state)}, {result: out, "h": new(state), "c": new(state)}
    )
    call = lambda: session.run_with_iobinding(binding)  # noqa: E731
    call()
    return Prepared(call, {"y": out.numpy().ravel().copy()}, units=len(x), note="IO binding")
