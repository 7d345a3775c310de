"""From a table to samples: missing values, derived columns, windows, splits, standardisation.

    samples = hl.data.Samples("load.parquet", inputs=["temp", "yesterday"], targets="load", length=48,
                              lags=[hl.data.Lag("yesterday", "load", 48)])
    run = hl.fit(model, samples)
    forecast = samples.preparation.unscale(run.predict(samples.test))

A table is a path (.csv, .npy, .npz, .parquet), a dict of columns, or anything with the Arrow C stream interface: pyarrow, polars, pandas and
DuckDB tables. What the options mean is told in docs/data.md: they are those of the command line's [data], [window] and [split], some with
another name.
"""

import dataclasses
import inspect
import operator
import os

import numpy

from hotloop import _core
from hotloop._core import Dataset
from hotloop._names import IN_DATA, absent, checked_call, kind_of, try_setting

__all__ = ["Cycle", "Dataset", "Lag", "MissingRule", "OneHot", "Preparation", "Samples", "Split"]

_TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MISSING = tuple(_core.missing_values)
_DATE_FORMATS = ("yyyy-mm-dd", "dd/mm/yyyy", "mm/dd/yyyy")  # by DateOrder


@dataclasses.dataclass(frozen=True)
class Lag:
    """A column as it was `steps` rows earlier; where the table has times, `steps` time steps earlier. Within its group."""

    name: str
    column: str
    steps: int


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Inputs name_sin1, name_cos1, ...: where a row stands in a cycle.

    of: "row": (floor(row / step) + phase) mod period; or, of the column of times, "hour_of_day", "day_of_week", "hour_of_week", "day_of_year".
    """

    name: str
    of: str = "row"
    period: float = 1.0
    step: int = 1
    phase: float = 0.0
    harmonics: int = 1


@dataclasses.dataclass(frozen=True)
class OneHot:
    """A column of texts as one input for each category of the training rows.

    unknown_as_zeros: a category that no training row has is all zeros; else an error.
    """

    column: str
    unknown_as_zeros: bool = False


@dataclasses.dataclass(frozen=True)
class MissingRule:
    """Another way with the missing values of some columns: fill is "refuse", "drop", "forward" or "mean"; indicator adds an input that is 1
    where a value was missing."""

    columns: list
    fill: str = "mean"
    indicator: bool = False


@dataclasses.dataclass(frozen=True)
class Split:
    """Parts of the rows, groups or samples; what train and validation leave is the test part.

    by: "time", "group", "random", "column" (which says "train", "validation" or "test"). "none": every sample is in all three parts, for fitting what there is, as
        one trajectory. None: by time, series at random.
    """

    by: str | None = None
    train: float = 0.7
    validation: float = 0.15
    seed: int = 0
    validation_groups: list = dataclasses.field(default_factory=list)
    test_groups: list = dataclasses.field(default_factory=list)
    column: str = ""


class Preparation:
    """A recipe with all that was fitted on the training rows: does to new rows what was done to those."""

    def __init__(self, core):
        self._core = core

    @staticmethod
    def load(path):
        """Of a file: one that save wrote, or preparation.json of a run of the command line."""
        with open(path, encoding="utf-8") as file:
            return Preparation(_core.Preparation.parse(file.read(), os.fspath(path)))

    def save(self, path):
        """Writes it as JSON, which reads back to the same numbers. A file that is there is replaced when the new one is whole."""
        _core.write_file(os.fspath(path), self._core.json().encode(), "data")

    @property
    def input_names(self):
        """One a feature."""
        return self._core.input_names

    @property
    def classes(self):
        """Of a classification, the label of each index."""
        return self._core.classes

    def unscale(self, predictions, *, width=False):
        """Standardised predictions (samples, horizon_steps * targets) in the targets' units, as float64. width: they are deviations, a
        loss's statistic "std" say, which have the unit but no zero point."""
        return self._core._unscale(predictions, width)

    def apply(self, table, block_size=1024, **csv):
        """Samples of new rows, which need the columns of the inputs and of lags among them: an iterator over blocks of at most block_size, each a
        dict of x (n, ...), lengths (of series, else None), rows (n): the row that ends each sample, times and groups if the recipe has them. Rows are read as
        blocks are asked for, in memory that does not grow with the table.
        csv: separator, missing_values, time_unit and date_format, as for Samples."""
        return self._core._apply(_source(table, **csv), block_size)

    def describe(self):
        """A line for each thing that was fitted or filled."""
        return self._core.describe()

    def __repr__(self):
        return f"Preparation({', '.join(self.input_names)})"


class Samples:
    """The samples of a table, in three parts: train, validation and test are Datasets, which hl.fit takes; .arrays() gives their numbers.

    table: see the module. Rows beyond memory_mb lie in a temporary file.
    inputs: columns, and names of lags, cycles and one-hot columns; "x*": all columns that begin with x. targets: one column or several.
    length, stride, horizon, horizon_steps: of a window, in rows. sample: a column whose values name series of their own lengths instead.
    task: "regression", or "classification": the target becomes an index into the sorted labels.
    time, time_step, group, weight, missing, indicator, missing_rules, lags, cycles, one_hots, split, standardize, standardize_targets: as in docs/data.md.
    kept: columns and lags that kept() gives for each sample. dtype: of the arithmetic, "float32" or "float64".
    separator: of a CSV file. missing_values: texts that stand for a missing value. time_unit: of times that are numbers, "s", "ms", "us" or "ns".
        date_format: of times that are texts.

    UserError for what does not fit, naming the place in the table.
    """

    @checked_call("hl.data.Samples(table, inputs=[...], targets='...', length=24)")
    def __init__(
        self,
        table,
        *,
        inputs,
        targets,
        length=1,
        stride=1,
        horizon=0,
        horizon_steps=1,
        time="",
        time_step="auto",
        group="",
        sample="",
        weight="",
        missing="refuse",
        indicator=False,
        missing_rules=(),
        lags=(),
        cycles=(),
        one_hots=(),
        split=None,
        task="regression",
        balance_classes=False,
        standardize=True,
        standardize_targets=True,
        kept=(),
        dtype="float32",
        memory_mb=1024,
        **csv,
    ):
        unknown = next((name for name in csv if name not in _source.__kwdefaults__), None)
        if unknown:
            error = f"got an unexpected keyword argument {unknown!r}"
            of_split = f". Try: split=hl.data.Split({unknown}=...)" if unknown in Split.__dataclass_fields__ else ""
            raise TypeError(f"Samples(): {error}{of_split or try_setting(error, [*inspect.signature(Samples.__init__).parameters, *_source.__kwdefaults__])}")
        split = split or Split()
        if not isinstance(split, Split):
            raise _core.UserError(f"[data] split must be a hl.data.Split. Received: {split!r}. Try: hl.data.Split(by=\"time\", train=0.7, validation=0.15).")
        if split.by is None:
            split = dataclasses.replace(split, by="random" if sample else "time")
        recipe = {
            "inputs": _texts(inputs), "targets": _texts(targets), "length": length, "stride": stride,
            "horizon": horizon, "horizon_steps": horizon_steps, "time": time, "time_step": time_step, "group": group, "sample": sample,
            "weight": weight, "missing": missing, "indicator": indicator,
            "missing_rules": [{**rule, "columns": _texts(rule["columns"])} for rule in _dicts(missing_rules, MissingRule)],
            "lags": _dicts(lags, Lag), "cycles": _dicts(cycles, Cycle), "one_hots": _dicts(one_hots, OneHot),
            "split": {**dataclasses.asdict(split), **{k: _texts(getattr(split, k)) for k in ("validation_groups", "test_groups")}}, "task": task, "balance_classes": balance_classes, "standardize": standardize,
            "standardize_targets": standardize_targets,
            "kept": _texts(kept), "dtype": dtype,
        }  # fmt: skip
        self._core = _core.Samples(_source(table, **csv), recipe, _memory_bytes(memory_mb))

    @property
    def train(self):
        """The training part."""
        return self._core.train

    @property
    def validation(self):
        """The validation part."""
        return self._core.validation

    @property
    def test(self):
        """The test part."""
        return self._core.test

    @property
    def preparation(self):
        """What was fitted, for new rows."""
        return Preparation(self._core.preparation)

    def target_rows(self, part):
        """The table's row of each sample's first target, of one of the three parts; of a series its last row."""
        return self._core.target_rows(part)

    def kept(self, part, name):
        """Values of a kept column at each sample's target rows: (samples * horizon_steps). A lag may there be of rows after the window."""
        return self._core.kept(part, name)

    def describe(self):
        """Samples in each part."""
        return self._core.describe()

    def __repr__(self):
        return f"Samples({len(self.train)} train, {len(self.validation)} validation, {len(self.test)} test)"


def _texts(given):
    """A text, or several, as a list: the characters of one are never meant."""
    return [given] if isinstance(given, str) else list(given)


def _memory_bytes(memory_mb):
    try:
        number = operator.index(memory_mb)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 43:
        raise _core.UserError(f"[data] memory_mb must be a whole number of megabytes, not negative. Received: {memory_mb!r}. Try: 1024; 0 keeps all rows in a file.")
    return number << 20


def _dicts(items, cls):
    for item in items:
        if not isinstance(item, cls):
            raise _core.UserError(f"[data] each must be a {cls.__name__}. Received: {item!r}. Try: hl.data.{cls.__name__}(...)")
    return [dataclasses.asdict(item) for item in items]


def _source(table, *, separator=",", missing_values=_MISSING, time_unit="s", date_format="yyyy-mm-dd"):
    """The engine's source of a table's rows."""
    if time_unit not in _TIME_UNITS:
        raise _core.UserError(f"[data] time_unit must be one of {', '.join(_TIME_UNITS)}. Received: {time_unit!r}.")
    if date_format not in _DATE_FORMATS:
        raise _core.UserError(f"[data] date_format must be one of {', '.join(_DATE_FORMATS)}. Received: {date_format!r}.")
    options = {"separator": separator, "missing_values": _texts(missing_values), "time_unit": _TIME_UNITS[time_unit], "dates": _DATE_FORMATS.index(date_format)}
    if isinstance(table, (str, os.PathLike)):
        path = os.fspath(table)
        if path.endswith((".parquet", ".pq")):
            return _parquet(path, options)
        return _core.file_source(path, options)
    if isinstance(table, dict):
        return _core.columns_source([_column(name, values) for name, values in table.items()], "the table", options)
    if hasattr(table, "__arrow_c_stream__"):
        try:
            stream = table.__arrow_c_stream__()
        except ImportError:  # pandas without pyarrow
            stream = None
        if stream is not None:
            return _core.arrow_source(stream, "the table", options)
    if type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "columns"):
        return _core.columns_source([_column(str(name), _pandas_values(table[name])) for name in table.columns], "the table", options)
    raise _core.UserError(
        f"[data] a table must be a path, a dict of columns, or have __arrow_c_stream__. Received: {kind_of(table)}. "
        "Try: {'x': array, ...}; a table of pyarrow, polars, pandas or DuckDB (1.4 or later)"
    )


def _parquet(path, options):
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise _core.UserError(
            f"[data] reading Parquet needs pyarrow, which is not installed. Received: {path}. Try: pip install pyarrow, or hand over a table of "
            "polars.read_parquet or duckdb.sql"
        ) from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise _core.UserError(f"[data] {path} must be a Parquet file that can be read. Received: {error}") from None
    # A piece of it at a time, so that memory does not grow with the file.
    reader = pyarrow.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
    return _core.arrow_source(reader.__arrow_c_stream__(), path, options)


def _pandas_values(series):
    """A pandas column as NumPy has it; a text that is missing is empty, a number that is missing NaN."""
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if series.dtype.kind in "iu" and not series.hasnans:
        return series.to_numpy(series.dtype.numpy_dtype if hasattr(series.dtype, "numpy_dtype") else series.dtype)
    if series.dtype.kind in "biuf":
        return series.to_numpy(numpy.float64, na_value=numpy.nan)
    if series.dtype.kind == "M":
        return series.to_numpy()
    return numpy.array(["" if missing else text for text, missing in zip(series.astype(object), series.isna())], dtype=object)


def _without_mask(name, values):
    """A masked array as a plain one, whose masked elements are missing values: NaN, NaT. Texts have none."""
    if values.dtype.kind in "biuf":
        return values.astype(numpy.float64).filled(numpy.nan)
    if values.dtype.kind == "M":
        return values.filled(numpy.datetime64("NaT"))
    masked = numpy.ma.count_masked(values)
    if masked:
        raise _core.UserError(
            f"[data] a column of texts must have a text in each row. Received: {name!r}, {masked} of whose elements are masked. "
            "Try: x.filled('unknown'), a text of their own; or a table of pyarrow, whose nulls are missing values."
        )
    return values.data


def _column(name, values):
    values = _without_mask(name, values) if isinstance(values, numpy.ma.MaskedArray) else numpy.asarray(values)
    if values.ndim != 1:
        raise _core.UserError(f"[data] a column must be one-dimensional. Received: {name!r} of shape {values.shape}.")
    if values.dtype.kind in "biuf":
        numbers = values.astype(numpy.float64)
        # Beyond 2^53 doubles round: as a label, the number of a customer say, it is the integer that it was.
        if values.dtype.kind in "iu" and len(values) and float(numpy.abs(numbers).max()) >= 2**53:
            return name, "integer", numbers, [str(v) for v in values]
        return name, "number", numbers
    if values.dtype.kind == "M":
        seconds = (values - numpy.datetime64(0, "s")) / numpy.timedelta64(1, "s")
        return name, "time", seconds.astype(numpy.float64)
    if values.dtype.kind in "UT" or (values.dtype.kind == "O" and all(isinstance(v, str) for v in values)):
        return name, "text", [str(v) for v in values]
    raise _core.UserError(f"[data] a column must hold numbers, datetime64 or texts. Received: {name!r} of dtype {values.dtype}.")


def __dir__():
    return __all__


def __getattr__(name):
    raise absent("hotloop.data", name, __all__, {}, IN_DATA)
