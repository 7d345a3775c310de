"""Names as other libraries have them: what is asked for and not there is answered with what it is called here."""

import difflib
import functools
import inspect
import os
import re
import sys

from hotloop import _core

# Of NumPy, PyTorch and JAX where the array API standard has another name.
FUNCTIONS = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "array": "asarray", "as_tensor": "asarray", "cat": "concat", "clamp": "clip", "concatenate": "concat",
    "cumprod": "cumulative_prod", "cumsum": "cumulative_sum", "dot": "matmul", "from_numpy": "asarray", "invert": "bitwise_invert",
    "mm": "matmul", "bmm": "matmul", "mod": "remainder", "mul": "multiply", "neg": "negative", "permute": "permute_dims", "power": "pow",
    "sub": "subtract", "swapaxes": "permute_dims", "tensor": "asarray", "true_divide": "divide", "unique": "unique_values",
    "unsqueeze": "expand_dims", "view": "reshape", "around": "round", "bitwise_not": "bitwise_invert", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "degrees": "rad2deg", "radians": "deg2rad", "conjugate": "conj", "row_stack": "concat", "array_equiv": "array_equal", "fix": "trunc", "rint": "round", "vstack": "concat", "hstack": "concat", "remat": "checkpoint",
    "no_grad": "stop_gradient", "detach": "stop_gradient", "segment_sum": "scatter_add", "index_add": "scatter_add", "map": "vmap", "vectorize": "vmap",
    "chunk": "split", "randn": "random", "rand": "random", "randperm": "random", "multinomial": "random", "manual_seed": "random", "erf_inv": "erfinv", "cummax": "cumulative_max", "cummin": "cumulative_min", "cumlogsumexp": "logcumsumexp", "trapz": "trapezoid", "trigamma": "polygamma", "select": "where", "inner": "tensordot",
    "percentile": "quantile", "nanpercentile": "nanquantile", "topk": "top_k", "partition": "top_k", "argpartition": "top_k",
    "swish": "silu", "hardtanh": "hard_tanh", "hardsigmoid": "hard_sigmoid", "expit": "sigmoid", "identity": "eye", "vdot": "vecdot",
    "argwhere": "nonzero", "flatnonzero": "nonzero", "Tensor": "Array", "ndarray": "Array", "DeviceArray": "Array", "dynamic_update_slice": "dynamic_update",
    "dynamic_slice_in_dim": "dynamic_slice", "mgrid": "meshgrid", "gather": "take_along_axis", "put_along_axis": "scatter_add", "digitize": "searchsorted",
}  # fmt: skip
# What is no single function here.
INSTEAD = {
    **dict.fromkeys(("conv", "conv1d"), "hl.convolve of two vectors, hl.nn.Conv1d of sequences"),
    **dict.fromkeys(("conv2d", "conv_general_dilated"), "a sum of products of shifted slices, sum(x[:, i:i + n] @ w[i] for i in range(k)), or hl.nn.Conv1d"),
    **dict.fromkeys(("lax", "numpy", "ops", "functional"), "the function's name in hl itself, as hl.scan or hl.sum"),
    **dict.fromkeys(("max_pool", "avg_pool", "max_pool1d", "max_pool2d", "avg_pool2d", "reduce_window"),
        "hl.max(hl.reshape(x, (batch, time // 2, 2, features)), axis=2), or hl.sliding_window_view"),
    **dict.fromkeys(("dot_product_attention", "scaled_dot_product_attention"), "hl.softmax(q @ k.mT / d**0.5) @ v"),
    **dict.fromkeys(("segment_max", "segment_min"), "hl.full((n, *x.shape[1:]), -hl.inf).at[ids].max(x), or hl.inf and .min"),
    "layer_norm": "hl.nn.LayerNorm", "batch_norm": "hl.nn.BatchNorm", "Module": "hl.nn.Module", "tree_map": "hl.tree.map",
    "dropout": "hl.nn.Dropout, or hl.where(hl.random.bernoulli(key, keep, x.shape), x / keep, 0)",
    "norm": "hl.linalg.norm", "trace": "hl.linalg.trace", "cross": "hl.linalg.cross", "diagonal": "hl.linalg.diagonal",
    "logit": "hl.log(p / (1 - p))", "lerp": "a + t * (b - a)", "heaviside": "hl.where(x > 0, 1.0, 0.0)",
    "scatter": "x.at[indices].set(values), or .add", "dynamic_index_in_dim": "x[i]", "print": "returning the value, and printing it where the function is called",
    "debug": "returning the value, and printing it where the function is called", "block_until_ready": "the result itself: it is finished when a call returns",
    "device_put": "hl.asarray(x): arrays lie in the host's memory, and hl.jit(f, device='cuda') runs f on a GPU", "average": "hl.sum(x * weights) / hl.sum(weights)",
    "expm": "hl.linalg.expm", "gradient": "(x[2:] - x[:-2]) / (2 * spacing) of samples, hl.diff for one-sided ones; hl.grad(f) of a function",
    "sinc": "hl.where(x == 0, 1.0, hl.sin(hl.pi * x) / (hl.pi * hl.where(x == 0, 1.0, x)))", "fmod": "x - y * hl.trunc(x / y), or hl.remainder, which has the sign of y",
    **dict.fromkeys(("apply_along_axis", "apply_over_axes"), "hl.vmap(f, in_axes=...) over the other axes"), "float_power": "hl.pow(x.astype(hl.float64), y)",
    **dict.fromkeys(("fmax", "fmin"), "hl.where(hl.isnan(x), y, hl.where(hl.isnan(y), x, hl.maximum(x, y))), or hl.minimum"),
    **dict.fromkeys(("isposinf", "isneginf"), "x == hl.inf, or x == -hl.inf"), "logaddexp2": "hl.logaddexp(x * ln2, y * ln2) / ln2, with ln2 = math.log(2)",
    **dict.fromkeys(("ldexp", "frexp", "modf"), "x * 2.0**n, and hl.trunc(x) with x - hl.trunc(x)"),
    **dict.fromkeys(("histogram", "histogram_bin_edges", "histogram2d"), "hl.bincount(hl.searchsorted(edges, x, side='right') - 1, length=len(edges) - 1)"),
    **dict.fromkeys(("delete", "insert"), "hl.concat([x[:i], values, x[i:]]), or x[:i] and x[i + 1:]"), "lexsort": "hl.argsort(..., stable=True) of each key in turn, the least important first",
    "piecewise": "hl.where, one inside of another", "choose": "hl.where, or hl.take_along_axis of a stack", "indices": "hl.meshgrid(hl.arange(n), hl.arange(m), indexing='ij')",
    "fill_diagonal": "x.at[i, i].set(values), with i = hl.arange(n)", **dict.fromkeys(("polyfit", "roots"), "hl.linalg.lstsq(hl.vander(x, degree + 1), y), or numpy of known numbers"),
    **dict.fromkeys(("hanning", "hamming", "blackman", "kaiser", "bartlett"), "NumPy's: its numbers are known while a function is traced"),
    **dict.fromkeys(("intersect1d", "union1d", "setdiff1d", "setxor1d"), "hl.isin(x, y), and hl.unique_values with a size"), "unwrap": "x + 2 * hl.pi * hl.cumulative_sum(...) of what hl.diff(x) jumps by",
    "broadcast_shapes": "numpy.broadcast_shapes", "promote_types": "hl.result_type(a, b)", "copy": "hl.asarray(x, copy=True)", **dict.fromkeys(("shape", "ndim", "size"), "an attribute of the array, as x.shape"),
    "nanargmax": "hl.argmax(hl.where(hl.isnan(x), -hl.inf, x))", "nanargmin": "hl.argmin(hl.where(hl.isnan(x), hl.inf, x))",
    "nancumsum": "hl.cumulative_sum(hl.where(hl.isnan(x), 0, x))", "nancumprod": "hl.cumulative_prod(hl.where(hl.isnan(x), 1, x))",
    **dict.fromkeys(("odeint", "solve_ivp", "diffeqsolve"), "hl.ode.solve(field, hl.ode.Tsit5(), t0, t1, y0)"),
    **dict.fromkeys(("cuda", "device", "is_available", "device_count"), "hl.devices(), and hl.jit(f, device='cuda')"), "set_default_device": "hl.jit(f, device='cuda')",
    **dict.fromkeys(("pmap", "sharding"), "hl.vmap, whose rows all threads share"), "compile": "hl.jit(f)", "function": "hl.jit(f)",
    **dict.fromkeys(("float16", "bfloat16", "half"), "hl.float32; factors of products may be bfloat16: docs/precision.md"),
}  # fmt: skip
# Of a place of an array.
PLACES = {
    "apply": "x.at[key].set(f(x[key]))", "power": "x.at[key].set(x[key] ** values)", "sub": "x.at[key].subtract(values)", "div": "x.at[key].divide(values)",
    "maximum": "x.at[key].max(values)", "minimum": "x.at[key].min(values)",
}  # fmt: skip
# Of jax.random, torch and numpy.random.
RANDOM = {
    "PRNGKey": "key", "seed": "key", "manual_seed": "key", "default_rng": "key", "Generator": "key", "rand": "uniform", "random": "uniform", "randn": "normal",
    "standard_normal": "normal", "integers": "randint", "random_integers": "randint", "shuffle": "permutation", "permuted": "permutation", "randperm": "permutation",
    "multinomial": "choice", "dropout": "bernoulli", "trunc_normal_": "truncated_normal", "standard_exponential": "exponential",
    "random_bits": "bits", "student_t": "t", "standard_t": "t", "standard_gamma": "gamma", "standard_cauchy": "cauchy", "weibull": "weibull_min",
}  # fmt: skip
IN_RANDOM = {
    "binomial": "hl.random.bernoulli(key, p, (n, *shape)).sum(axis=0)", "geometric": "hl.floor(hl.log(hl.random.uniform(key, shape)) / math.log1p(-p)) + 1",
}
# Of numpy.linalg, scipy.linalg and torch.linalg.
LINALG = {"cho_solve": "solve", "solve_ex": "solve", "inv_ex": "inv", "matrix_exp": "expm", "eigvals": "eigvalsh", "eig": "eigh", "logdet": "slogdet"}
IN_LINALG = {
    **dict.fromkeys(("lu", "lu_factor", "lu_solve"), "hl.linalg.solve(a, b): a program eliminates once for all right sides of the same a"),
    "cho_factor": "hl.linalg.cholesky(a), and hl.linalg.solve_triangular", "dot": "a @ b",
    "block_diag": "hl.concat of rows that hl.zeros fill", "LinAlgError": "hl.isfinite of the result: a matrix without a solution gives inf or nan",
}  # fmt: skip
# Methods of arrays in NumPy and PyTorch, and what is written here; other functions of hotloop are named by themselves.
METHODS = {
    "dot": "x @ y",
    "view": "x.reshape(...)", "unsqueeze": "x[:, None]", "permute": "x.transpose(axes)", "swapaxes": "x.transpose(axes)", "dim": "x.ndim", "t": "x.T",
    "backward": "hl.grad(f)(x), of the function that computes it", "grad": "hl.grad(f)(x), of the function that computes it",
    "requires_grad_": "hl.grad(f)(x), of the function that computes it", "float": "x.astype(hl.float32)", "double": "x.astype(hl.float64)",
    "long": "x.astype(hl.int64)", "int": "x.astype(hl.int32)", "to": "x.astype(dtype)", "copy": "hl.asarray(x, copy=True)", "clone": "hl.asarray(x, copy=True)",
    "fill_": "hl.full_like(x, value)", "sort": "hl.sort(x)", "new_zeros": "hl.zeros(shape)", "contiguous": "x, which is", "cuda": "x, in the host's memory: hl.jit(f, device='cuda') runs f on a GPU",
    "cpu": "x, which lies in the host's memory", "softmax": "hl.softmax(x, axis=-1)",
}  # fmt: skip
# Of models in PyTorch and Keras.
MODELS = {
    "parameters": "params = model.init(seed), which you hold", "named_parameters": "params = model.init(seed), which you hold",
    "state_dict": "params = model.init(seed), which you hold, and hl.save(path, params)", "load_state_dict": "params = hl.load(path, like=model.init())",
    "to": "hl.fit(model, data, device='cuda'), or hl.jit(model, device='cuda')(params, x)", "cuda": "hl.fit(model, data, device='cuda'), or hl.jit(model, device='cuda')(params, x)",
    "train": "model(params, x, key=key) for training, as hl.fit does; without a key nothing is dropped", "eval": "model(params, x): without a key nothing is dropped",
    "fit": "hl.fit(model, (x, y))", "predict": "hl.predict(model, params, x)", "compile": "hl.fit(model, (x, y), loss=..., optimizer=...)",
    "summary": "print(model), and hl.tree.map(lambda a: a.shape, model.init())", "zero_grad": "hl.grad(f)(params), which adds nothing up", "forward": "model(params, x)",
    "save": "hl.save(path, params)", "evaluate": "hl.evaluate(model, params, data)", "get_weights": "params = model.init(seed), which you hold",
    **dict.fromkeys(("weights", "trainable_weights", "trainable_variables"), "params = model.init(seed), which you hold"), "set_weights": "model(params, x), with the params that you hold",
    **dict.fromkeys(("stream", "step", "reset_state", "reset_states", "predict_on_batch"), "voice = model.bind(params).voice(), and voice.step(x) for one step of time"),
    **dict.fromkeys(("add", "append", "add_module", "register_module"), "hl.nn.Sequential(*layers): a model does not change once it is made"),
    "register_buffer": "init_buffers and buffers=, as hl.nn.BatchNorm has them", "register_parameter": "an entry of what init gives, in a hl.nn.Module of your own",
    "requires_grad_": "hl.grad with respect to a part of params: lambda part: loss({**params, **part})",
    **dict.fromkeys(("double", "float"), "model.init(seed, dtype='float64'), or 'float32'"), "half": "hl.fit(model, data, dot_precision='bfloat16')", "cpu": "the model itself: arrays lie in the host's memory",
}  # fmt: skip
RUNS = {  # of what Keras's fit gives, and of models
    "loss": "[r.train_loss for r in run.history]", "losses": "[r.train_loss for r in run.history]",
    "val_loss": "[r.validation for r in run.history], the metric of each epoch; with hl.fit(..., metric={'mae': hl.metrics.MAE(), 'val_loss': hl.losses.MSE()}) also [r.metrics['val_loss'] for r in run.history]",
    "save": "hl.save(path, run.params)", **dict.fromkeys(("weights", "parameters", "state_dict", "get_weights", "best_params"), "params"),
}  # fmt: skip
LAYERS = {"BatchNormalization": "BatchNorm", "BatchNorm1d": "BatchNorm", "LayerNormalization": "LayerNorm",
          "GlobalMaxPooling1D": "MaxPool", "GlobalAveragePooling1D": "MeanPool", "Dense": "Linear", "SimpleRNN": "RNN", "Activation": "Tanh", "LSTMCell": "Recurrent", "GRUCell": "Recurrent", "ModuleList": "Sequential"}
# Elementwise functions and the like, which are in hl itself, and layers that are not there.
IN_LAYERS = {
    **{name: f"hl.{name}" for name in ("relu", "gelu", "silu", "elu", "selu", "mish", "softplus", "softmax", "log_softmax", "sigmoid", "tanh", "leaky_relu", "one_hot")},
    **dict.fromkeys(("Conv2d", "Conv2D", "MaxPool2d"), "a hl.nn.Module of your own, with slices: a sum of x[:, i:i + n, j:j + m] @ w[i, j]"),
    **dict.fromkeys(("MaxPool1d", "MaxPooling1D"), "hl.nn.MaxPool() over all steps; over every two, a hl.nn.Module of your own with hl.max(hl.reshape(x, (len(x), -1, 2, x.shape[2])), axis=2)"),
    **dict.fromkeys(("AvgPool1d", "AveragePooling1D"), "hl.nn.MeanPool() over all steps; over every two, a hl.nn.Module of your own with hl.mean(hl.reshape(x, (len(x), -1, 2, x.shape[2])), axis=2)"),
    "Lambda": "a hl.nn.Module of your own, with def apply(self, params, x, key=None)", "TimeDistributed": "the layer itself: hl.nn.Linear takes each step by itself",
    "Masking": "lengths: hl.fit(model, {'x': x, 'y': y, 'lengths': n})", **dict.fromkeys(("Input", "InputLayer"), "nothing: the first layer is told how many inputs it has"),
    **dict.fromkeys(("MultiheadAttention", "MultiHeadAttention", "TransformerEncoderLayer", "TransformerEncoder", "Transformer"),
        "a hl.nn.Module of your own, with hl.softmax(q @ k.mT / d**0.5) @ v"),
    "functional": "the function's name in hl, as hl.relu", "Parameter": "an entry of what init gives, in a hl.nn.Module of your own",
}  # fmt: skip
LOSSES = {"BCE": "BinaryCrossEntropy", "BCELoss": "BinaryCrossEntropy", "BCEWithLogits": "BinaryCrossEntropy", "BCEWithLogitsLoss": "BinaryCrossEntropy", "L1": "MAE", "L1Loss": "MAE",
          "SmoothL1Loss": "Huber", "NLLLoss": "CrossEntropy", "GaussianNLLLoss": "Gaussian", "PoissonNLLLoss": "Poisson", "CTCLoss": "CTC", "Pinball": "Quantile", "PinballLoss": "Quantile", "softmax_cross_entropy": "CrossEntropy"}  # fmt: skip
OPTIMIZERS = {"lr_scheduler": "Schedule", "clip_by_global_norm": "ClipByNorm", "chain": "ClipByNorm", "CosineDecay": "Cosine", "cosine_decay_schedule": "Cosine", "CosineAnnealingLR": "Cosine",
              "warmup_cosine_decay_schedule": "Warmup", "StepLR": "Step", "ReduceLROnPlateau": "Plateau", "OneCycleLR": "OneCycle", "LinearLR": "Warmup", "ExponentialLR": "Step", "ExponentialDecay": "Step", "exponential_decay": "Step"}  # fmt: skip
IN_OPTIMIZERS = {
    **dict.fromkeys(("LambdaLR", "LearningRateScheduler"), "in a loop by hand, an optimiser with the rate 1, of whose step a part is taken: docs/python.md#a-rate-of-your-own"),
    "apply_updates": "params, state = optimizer.update(grads, state, params), which gives the new params",
    "global_norm": "hl.linalg.norm(hl.tree.ravel(grads)[0])",
}
ESTIMATORS = {
    **dict.fromkeys(("Regressor", "MLPRegressor", "LSTMRegressor", "HotloopRegressor", "KerasRegressor", "NeuralNetRegressor"), "SequenceRegressor"),
    **dict.fromkeys(("Classifier", "MLPClassifier", "LSTMClassifier", "HotloopClassifier", "KerasClassifier", "NeuralNetClassifier"), "SequenceClassifier"),
}  # fmt: skip
TREES = {
    **dict.fromkeys(("reduce", "tree_reduce"), "functools.reduce(fn, hl.tree.leaves(tree), start)"), "all": "all(hl.tree.leaves(tree))", "tree_map": "hl.tree.map",
    **dict.fromkeys(("map_with_path", "leaves_with_path", "flatten_with_path"), "zip(hl.tree.paths(tree), hl.tree.leaves(tree))"), "stack": "hl.tree.map(lambda *leaves: hl.stack(leaves), *trees)",
}  # fmt: skip
IN_DATA = dict.fromkeys(("DataLoader", "TensorDataset", "from_tensor_slices"), "hl.fit(model, (x, y)) of whole arrays, of which batches are made")
EQUATIONS = {
    "diffeqsolve": "solve", "odeint": "solve", "solve_ivp": "solve", "PIDController": "PID", "ConstantStepSize": "ConstantStep",
    "ClipStepSizeController": "Clip", "RecursiveCheckpointAdjoint": "Discrete", "DirectAdjoint": "Discrete", "BacksolveAdjoint": "Backsolve",
    "RK45": "Dopri5", "DOP853": "Dopri8", "LSODA": "Kvaerno5", "BDF": "Kvaerno5", "Radau": "Kvaerno5",
}  # fmt: skip
# Of arguments: a name here, or several, of which the first that the call has is meant.
_SETTINGS = {
    "dim": "axis", "dims": "axis", "keepdim": "keepdims",
    "lr": "learning_rate", "eps": "epsilon", "betas": "beta1 and beta2", "b1": "beta1", "b2": "beta2", "beta_1": "beta1", "beta_2": "beta2", "rho": "decay",
    "alpha": ("decay", "slope"), "T_max": "steps", "total_steps": "steps", "decay_steps": "steps", "warmup_steps": "steps", "step_size": "every",
    "eta_min": "last, a part of the learning rate", "min_lr": "least, a part of the learning rate", "pct_start": "rise", "pct_increase": "rise",
    "div_factor": "divisor", "final_div_factor": "last_divisor", "num_embeddings": "count", "input_dim": ("count", "inputs"), "vocab_size": "count",
    "embedding_dim": "units", "output_dim": "units", "padding_idx": "padding", "in_channels": "inputs", "out_channels": "filters", "kernel_size": "kernel",
    "dilation_rate": "dilation", "num_features": "inputs", "normalized_shape": "inputs", "features": ("hidden", "filters", "units", "inputs"),
    "num_layers": "layers", "hidden_size": "hidden", "units": "hidden", "input_size": "inputs",
    "in_features": "inputs", "out_features": "units", "p": "rate", "metrics": "metric", "validation_split": "validation", "validation_data": "validation",
    "x": "data, a pair (x, y)", "y": "data, a pair (x, y)", "verbose": "progress", "opt": "optimizer", "num_epochs": "epochs", "steps_per_execution": "steps_per_call",
    "minval": "low", "maxval": "high", "size": "shape", "stepsize_controller": "controller", "until": "events", "terminal_event": "events", "method": "solver", "t_eval": "saveat",
    "target": "targets", "missing_indicator": "indicator", "fill": "missing_rules, of hl.data.MissingRule", "lag": "lags, of hl.data.Lag", "periodic": "cycles, of hl.data.Cycle",
    "one_hot": "one_hots, of hl.data.OneHot", "precision": "dtype",
    "ddof": "correction", "a_min": "min", "a_max": "max", "negative_slope": "slope",
}  # fmt: skip
_REMARKS = {
    "batch_first": "Sequences are (batch, time, features) always",
    "return_sequences": "Try: hl.nn.Last() after the layer, for its last step alone",
    "return_state": "Try: model(params, x, state=state), which gives the state too",
    "rtol": "Try: controller=hl.ode.PID(rtol=1e-6, atol=1e-8)",
    "atol": "Try: controller=hl.ode.PID(rtol=1e-6, atol=1e-8)",
    "lr": "Try: optimizer=hl.optim.Adam(1e-3)",
    "learning_rate": "Try: optimizer=hl.optim.Adam(1e-3)",
    "restore_best_weights": "Leave it out: run.params are those of the best epoch",
    "monitor": "Leave it out: the metric of the validation is what counts, hl.fit(..., metric=...)",
    "schedule": "Try: learning_rate=hl.optim.Schedule(1e-3, hl.optim.Cosine(1000))",
    "weight_decay": "Try: hl.optim.AdamW; or, in a loop by hand, a term of the loss, 0.5 * weight_decay * (hl.tree.ravel(params)[0] ** 2).sum()",
    "clipnorm": "Try: hl.optim.ClipByNorm(hl.optim.Adam(1e-3), 1.0)",
    "activation": "Try: a layer after it, such as hl.nn.ReLU()",
    **dict.fromkeys(("pool_size", "kernel_size"), "It is over all steps. Try: hl.max(hl.reshape(x, (len(x), -1, 2, x.shape[2])), axis=2) in a hl.nn.Module of your own"),
    "input_shape": "Try: inputs, the number of features",
    "trainable": "Try: hl.stop_gradient(params[\"lstm\"]) in apply of a hl.nn.Module of your own; or a loop of your own, with hl.grad with respect to a part of params",
    "unroll": "Leave it out: the compiler decides how much of a loop is written out",
}  # fmt: skip


def callers_level():
    """The stacklevel of a warning that shows the line outside of the package from which it was come to."""
    package, frame, level = os.path.dirname(__file__) + os.sep, sys._getframe(1), 1
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level


def kind_of(value):
    """What `value` is, for a message: "a list", "an int", "None"; of a traced one what it stands for."""
    if value is None:
        return "None"
    if _core.is_tracer(value):
        return "a number" if value.weak else f"an array {value._type}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def absent(module, name, known, elsewhere, instead=None):
    """The AttributeError of `module` for a name it has not, with what may be meant: by `elsewhere` a name of its own, by `instead` something in words."""
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("__"):
        return AttributeError(text)
    if name in (instead or {}):
        return AttributeError(f"{text}. Try: {instead[name]}")
    known = [k for k in known if not k.startswith("_")]
    lower = {k.lower(): k for k in known}
    meant = elsewhere.get(name) or lower.get(name.lower()) or lower.get(name.lower().removesuffix("loss")) or next(iter(difflib.get_close_matches(name, known, 1, 0.75)), None)
    return AttributeError(f"{text}. Try: {module}.{meant}" if meant in known else text)


def absent_attribute(of, name, meant, known):
    """The AttributeError of an object that has no such attribute; `meant`: what other libraries' names are here, `known`: what it has."""
    text = f"{of} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    instead = meant.get(name) or next(iter(difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], 1, 0.8)), None)
    return AttributeError(f"{text}. Try: {instead}" if instead else text)


def try_setting(error, names):
    """". Try: ..." for the TypeError of a call with an argument that does not exist, or ""."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if not found:
        return ""
    name = found[1]
    told = _SETTINGS.get(name, ())
    meant = next((m for m in (told if isinstance(told, tuple) else (told,)) if m.partition(" ")[0].rstrip(",") in names), None)
    if meant is None:
        if name in _REMARKS:
            return f". {_REMARKS[name]}"
        meant = next(iter(difflib.get_close_matches(name, names, 1, 0.6)), None)
    return f". Try: {meant}" if meant else ""


def checked_call(hint):
    """For a function whose arguments are often given as another library has them: `hint` ends the TypeError of too many of them."""

    def declare(fn):
        signature = inspect.signature(fn)

        name = {"__call__": "model", "__init__": fn.__qualname__.partition(".")[0]}.get(fn.__name__, fn.__name__)

        @functools.wraps(fn)
        def call(*args, **kwargs):
            try:
                return fn(*args, **kwargs)
            except TypeError:
                try:
                    signature.bind(*args, **kwargs)
                except TypeError as error:
                    raise TypeError(f"{name}(): {error}{try_setting(error, list(signature.parameters)) or f'. Try: {hint}'}") from None
                raise

        return call

    return declare


def checked_fields(hint):
    """checked_call for a NamedTuple."""

    def declare(cls):
        make, fields = cls.__new__, list(cls._fields)

        @functools.wraps(make)
        def call(of, *args, **kwargs):
            try:
                return make(of, *args, **kwargs)
            except TypeError as error:
                told = str(error).partition("() ")[2]
                raise TypeError(f"{cls.__name__}({', '.join(fields)}): {told}{try_setting(error, fields) or f'. Try: {hint}'}") from None

        cls.__new__ = call
        return cls

    return declare


def checked_instance(where, what, given, base, module):
    """`given`, an instance of `base`. UserError that names the class of `module` that a string, or the class itself, may mean."""
    if isinstance(given, base):
        return given
    name = given.__name__ if isinstance(given, type) else given if isinstance(given, str) else ""
    classes = {k.lower(): k for k in module.__all__ if isinstance(getattr(module, k), type) and issubclass(getattr(module, k), base)}
    meant = classes.get(name.lower().replace("_", "")) or next(iter(sorted(classes.values())))
    came = f"the class {name}" if isinstance(given, type) else repr(given) if name else kind_of(given)
    raise _core.UserError(f"[{where}] {what} must be one of {module.__name__}. Received: {came}. Try: hl.{module.__name__.rpartition('.')[2]}.{meant}().")
