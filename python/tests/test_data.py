"""hl.data: samples of tables of every kind, the same whatever the table came as."""

import threading

import hotloop as hl
import numpy as np
import pytest

ROWS = 400


def columns():
    rng = np.random.default_rng(3)
    hours = np.arange(ROWS)
    return {
        "when": np.datetime64("2024-01-01T00:00:00.000") + hours * np.timedelta64(3_600_000, "ms"),
        "load": np.sin(2 * np.pi * hours / 24) + 0.1 * rng.normal(size=ROWS),
        "temp": rng.normal(size=ROWS),
        "sky": np.array(["clear", "rain", "long and cloudy"])[rng.integers(0, 3, ROWS)],
        "count": rng.integers(0, 9, ROWS),
    }


RECIPE = dict(
    inputs=["temp", "load_before", "hour", "sky", "count"], targets="load", time="when", length=6, horizon=1, lags=[hl.data.Lag("load_before", "load", 2)],
    cycles=[hl.data.Cycle("hour", of="hour_of_day", harmonics=2)], one_hots=[hl.data.OneHot("sky")],
)  # fmt: skip


def bits(samples):
    return [{k: np.asarray(v).tobytes() for k, v in part.arrays().items()} for part in (samples.train, samples.validation, samples.test)]


@pytest.fixture(scope="module")
def wanted():
    return bits(hl.data.Samples(columns(), **RECIPE))


def write_csv(path, table):
    names = list(table)
    rows = zip(*(np.datetime_as_string(v) if v.dtype.kind == "M" else [repr(x) if isinstance(x, float) else x for x in v.tolist()] for v in table.values()))
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")


def test_dates_day_first(tmp_path, wanted):
    table = columns()
    write_csv(tmp_path / "t.csv", table)
    text = (tmp_path / "t.csv").read_text()
    for when in table["when"]:
        iso = np.datetime_as_string(when)
        text = text.replace(iso, f"{iso[8:10]}/{iso[5:7]}/{iso[:4]} {iso[11:]}")
    (tmp_path / "t.csv").write_text(text)
    samples = hl.data.Samples(tmp_path / "t.csv", date_format="dd/mm/yyyy", **RECIPE)
    assert bits(samples) == wanted
    new = [block["x"] for block in samples.preparation.apply(tmp_path / "t.csv", ROWS, date_format="dd/mm/yyyy")]
    assert [len(x) for x in new] == [ROWS - 7]
    with pytest.raises(hl.UserError, match=r"Try: date_format = \"dd/mm/yyyy\""):
        hl.data.Samples(tmp_path / "t.csv", **RECIPE)
    with pytest.raises(hl.UserError, match="date_format must be one of yyyy-mm-dd, dd/mm/yyyy"):
        hl.data.Samples(tmp_path / "t.csv", date_format="dmy", **RECIPE)


def test_a_file_and_a_dict_give_the_same_samples(wanted, tmp_path):
    write_csv(tmp_path / "t.csv", columns())
    samples = hl.data.Samples(tmp_path / "t.csv", **RECIPE)
    assert bits(samples) == wanted
    assert samples.preparation.input_names == [
        "temp", "load_before", "hour_sin1", "hour_cos1", "hour_sin2", "hour_cos2", "sky=clear", "sky=long and cloudy", "sky=rain", "count",
    ]  # fmt: skip
    x = samples.train.arrays()["x"]
    assert x.shape == (len(samples.train), 6, 10) and x.dtype == np.float32


def arrow_tables():
    def pyarrow(table):
        return pytest.importorskip("pyarrow").table(table)

    def chunks(table):
        pa = pytest.importorskip("pyarrow")
        whole = pa.table({**table, "sky": pa.array(table["sky"]).dictionary_encode()})
        return pa.concat_tables([whole.slice(0, 150), whole.slice(150, 1), whole.slice(151)])

    def polars(table):
        return pytest.importorskip("polars").DataFrame(table)

    def categorical(table):
        pl = pytest.importorskip("polars")
        return pl.DataFrame(table).with_columns(pl.col("sky").cast(pl.Categorical))

    def pandas(table):
        pytest.importorskip("pyarrow")
        return pytest.importorskip("pandas").DataFrame(table)

    def duckdb(table):
        db = pytest.importorskip("duckdb")
        pa = pytest.importorskip("pyarrow")
        frame = pa.table(table)  # noqa: F841  (the query finds it by its name)
        return db.sql("select * from frame")

    return {f.__name__: f for f in (pyarrow, chunks, polars, categorical, pandas, duckdb)}


@pytest.mark.parametrize("kind", arrow_tables())
def test_tables_of_other_libraries_give_the_same_samples(kind, wanted):
    assert bits(hl.data.Samples(arrow_tables()[kind](columns()), **RECIPE)) == wanted


def test_pandas_without_pyarrow(wanted, monkeypatch):
    pd = pytest.importorskip("pandas")

    def no_pyarrow(*arguments):
        raise ImportError("`Import pyarrow` failed.")

    monkeypatch.setattr(pd.DataFrame, "__arrow_c_stream__", no_pyarrow)
    frame = pd.DataFrame(columns())
    assert bits(hl.data.Samples(frame, **RECIPE)) == wanted
    own = frame.assign(sky=frame["sky"].astype("category"), count=frame["count"].astype("Int64"), when=frame["when"].dt.tz_localize("UTC"))
    assert bits(hl.data.Samples(own, **RECIPE)) == wanted
    frame.loc[7, "temp"] = np.nan
    with pytest.raises(hl.UserError, match="every .* of column 'temp' must be .* row 7"):
        hl.data.Samples(frame, **RECIPE)


def test_arguments_of_samples_are_told():
    with pytest.raises(hl.UserError, match="column 'sky' must be numbers. Received: texts. Try: a one-hot column."):
        hl.data.Samples(columns(), inputs=["sky"], targets="load")
    with pytest.raises(TypeError, match=r"Samples\(\): missing a required (keyword-only )?argument: 'inputs'. Try: hl.data.Samples\(table, inputs="):
        hl.data.Samples(columns(), target="load")


def test_parquet(wanted, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(columns()), tmp_path / "t.parquet", row_group_size=37)
    assert bits(hl.data.Samples(tmp_path / "t.parquet", **RECIPE)) == wanted
    (tmp_path / "no.parquet").write_text("when,load\n")
    with pytest.raises(hl.UserError, match="must be a Parquet file that can be read"):
        hl.data.Samples(tmp_path / "no.parquet", **RECIPE)
    with pytest.raises(hl.UserError, match="every value of column 'temp' must be there. Received: null in row 7 of the table"):
        table = columns()
        temp = pa.array([None if i == 7 else float(v) for i, v in enumerate(table["temp"])])
        hl.data.Samples(pa.table({**table, "temp": temp}), **RECIPE)


def test_parquet_without_pyarrow_names_the_remedy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(hl.UserError, match="reading Parquet needs pyarrow, which is not installed. Received: t.parquet. Try: pip install pyarrow"):
        hl.data.Samples("t.parquet", **RECIPE)


def test_fit_predict_and_apply_to_new_rows(tmp_path):
    samples = hl.data.Samples(columns(), kept=["load"], **RECIPE)
    model = hl.nn.Sequential(hl.nn.GRU(10, 8), hl.nn.Last(), hl.nn.Linear(8, 1))
    run = hl.fit(model, samples, optimizer=hl.optim.Adam(1e-2), batch_size=16, epochs=20)
    parts = [part.arrays() for part in (samples.train, samples.validation)]
    again = hl.fit(model, parts[0], validation=parts[1], optimizer=hl.optim.Adam(1e-2), batch_size=16, epochs=20)
    assert run.history[-1].validation == again.history[-1].validation
    predicted = np.asarray(samples.preparation.unscale(run.predict(samples.test)))[:, 0]
    load = np.asarray(samples.kept(samples.test, "load"))
    np.testing.assert_array_equal(load, columns()["load"][np.asarray(samples.target_rows(samples.test))])
    assert np.abs(predicted - load).mean() < 0.3
    samples.preparation.save(tmp_path / "preparation.json")
    preparation = hl.data.Preparation.load(tmp_path / "preparation.json")
    new = {k: v[-20:] for k, v in columns().items()}
    blocks = list(preparation.apply(new))
    assert sum(len(b["x"]) for b in blocks) == 20 - 2 - 5 and np.asarray(blocks[0]["rows"])[0] == 7
    np.testing.assert_array_equal(blocks[-1]["x"][-2], samples.test.arrays()["x"][-1])


def test_all_samples_in_all_parts(tmp_path):
    samples = hl.data.Samples(columns(), **{**RECIPE, "split": hl.data.Split(by="none")})
    rows = [np.asarray(samples.target_rows(part)).tolist() for part in (samples.train, samples.validation, samples.test)]
    parts = hl.data.Samples(columns(), **{**RECIPE, "split": hl.data.Split(by="time")})
    apart = [row for part in (parts.train, parts.validation, parts.test) for row in np.asarray(parts.target_rows(part)).tolist()]
    assert rows[0] == rows[1] == rows[2] and set(apart) <= set(rows[0])
    np.testing.assert_array_equal(samples.train.arrays()["x"], samples.test.arrays()["x"])
    run = hl.fit(hl.nn.Sequential(hl.nn.GRU(10, 4), hl.nn.Last(), hl.nn.Linear(4, 1)), samples, epochs=2, progress=False)
    assert run.evaluate(samples.test) == run.best_validation
    samples.preparation.save(tmp_path / "preparation.json")
    assert len(next(hl.data.Preparation.load(tmp_path / "preparation.json").apply(columns()))["x"]) >= len(rows[0])
    with pytest.raises(hl.UserError, match="by must be one of time, group, random, column, none. Received: 'all'"):
        hl.data.Samples(columns(), **{**RECIPE, "split": hl.data.Split(by="all")})


def test_series_with_classes():
    table = {
        "id": np.repeat([f"s{i}" for i in range(30)], 4)[:-1], "x": np.arange(119.0) % 7, "label": np.repeat(["yes", "no"] * 15, 4)[:-1],
    }  # fmt: skip
    samples = hl.data.Samples(table, inputs=["x"], targets="label", sample="id", task="classification", split=hl.data.Split(seed=1))
    arrays = [part.arrays() for part in (samples.train, samples.validation, samples.test)]
    assert samples.preparation.classes == ["no", "yes"]
    assert sorted(n for a in arrays for n in np.asarray(a["lengths"]).tolist()) == [3] + [4] * 29
    assert arrays[0]["y"].dtype == np.int32


def test_errors(tmp_path):
    with pytest.raises(hl.UserError, match="must have the column 'tmp'.*did you mean 'temp'"):
        hl.data.Samples(columns(), **{**RECIPE, "inputs": ["tmp"]})
    with pytest.raises(hl.UserError, match="a table must be a path, a dict of columns, or have __arrow_c_stream__. Received: an int"):
        hl.data.Samples(3, **RECIPE)
    with pytest.raises(hl.UserError, match="each must be a Lag. Received: .*Try: hl.data.Lag"):
        hl.data.Samples(columns(), **{**RECIPE, "lags": [{"name": "x"}]})
    with pytest.raises(hl.UserError, match="missing must be one of refuse, drop, forward, mean. Received: 'zero'"):
        hl.data.Samples(columns(), missing="zero", **RECIPE)
    with pytest.raises(hl.UserError, match=r"a column must be one-dimensional. Received: 'temp' of shape \(2, 2\)"):
        hl.data.Samples({"temp": np.zeros((2, 2))}, **RECIPE)
    with pytest.raises(hl.UserError, match="separator must be one character"):
        hl.data.Samples("t.csv", separator=";;", **RECIPE)


def test_the_demos_samples_are_those_of_the_command_line():
    """Its source says so; here the windows by hand, as the documentation defines them."""
    from hotloop.demo import demand_samples

    rng = np.random.default_rng(0)
    table = {"Temperature": rng.normal(size=900), "WorkDay": np.arange(900.0) // 48 % 7 < 5, "Demand": rng.normal(size=900)}
    samples = demand_samples(table)
    x = np.asarray(samples.train.arrays()["x"])
    rows = np.asarray(samples.target_rows(samples.train))
    assert x.shape[1:] == (48, 10) and rows[0] == 336 + 47
    fitted = table["Temperature"][rows]  # the rows that end a training window
    scaled = (table["Temperature"] - fitted.mean()) / fitted.std()
    np.testing.assert_allclose(x[5, :, 0], scaled[rows[5] - 47 : rows[5] + 1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(samples.kept(samples.train, "demand_last_week")), table["Demand"][rows - 336])


@pytest.mark.parametrize("name, value, meant", [
    ("missing_indicator", True, "indicator"), ("lag", [], "lags, of hl.data.Lag"), ("periodic", [], "cycles, of hl.data.Cycle"), ("one_hot", [], "one_hots, of hl.data.OneHot"),
    ("fill", [], "missing_rules, of hl.data.MissingRule"), ("precision", "f64", "dtype"), ("by", "random", r"split=hl.data.Split\(by=...\)"), ("train", 0.5, r"split=hl.data.Split\(train=...\)"),
    ("seperator", ";", "separator"),
])  # fmt: skip
def test_names_of_a_configuration_are_answered(name, value, meant):
    with pytest.raises(TypeError, match=rf"Samples\(\): got an unexpected keyword argument '{name}'. Try: {meant}$"):
        hl.data.Samples(columns(), **RECIPE, **{name: value})


def test_a_split_is_a_split():
    with pytest.raises(hl.UserError, match=r"split must be a hl.data.Split. Received: 'random'. Try: hl.data.Split\(by="):
        hl.data.Samples(columns(), **RECIPE, split="random")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, int])
def test_masked_elements_of_columns_are_missing(dtype):
    x = np.arange(60.0)
    mask = x % 7 == 3
    recipe = {"inputs": ["x"], "targets": "y", "missing": "forward", "indicator": True}
    y = x**2

    def outcome(column):
        samples = hl.data.Samples({"x": column, "y": y}, **recipe)
        new = samples.preparation.apply({"x": column[:9]})
        return samples.preparation._core.json(), [np.asarray(block["x"]).tolist() for block in new], samples.train.arrays()["x"].tolist()

    assert outcome(np.ma.masked_array(x.astype(dtype), mask)) == outcome(np.where(mask, np.nan, x)) != outcome(x)
    assert outcome(np.ma.masked_array(x.astype(dtype))) == outcome(x)
    with pytest.raises(hl.UserError, match="every .* of column 'x' must be .* row 3"):
        hl.data.Samples({"x": np.ma.masked_array(x, mask), "y": y}, inputs=["x"], targets="y")


@pytest.mark.parametrize("dtype", [str, object])
def test_masked_texts_are_refused(dtype):
    texts = np.array(["a", "b", "c"] * 20, dtype)
    recipe = {"inputs": ["x"], "targets": "y", "one_hots": [hl.data.OneHot("x")]}
    with pytest.raises(hl.UserError, match=r"a text in each row. Received: 'x', 1 of whose elements are masked. Try: x.filled\('unknown'\)"):
        hl.data.Samples({"x": np.ma.masked_array(texts, np.arange(60) == 2), "y": np.arange(60.0)}, **recipe)
    samples = hl.data.Samples({"x": np.ma.masked_array(texts), "y": np.arange(60.0)}, **recipe)
    assert samples.preparation.input_names == ["x=a", "x=b", "x=c"]


def test_masked_times_and_targets():
    y = np.arange(60.0)
    times = np.arange("2020-01-01", "2020-03-01", dtype="datetime64[D]")
    gap = times.copy()
    gap[5] = np.datetime64("NaT")

    def refusal(times):
        with pytest.raises(hl.UserError) as error:
            hl.data.Samples({"t": times, "x": y, "y": y}, inputs=["x"], targets="y", time="t")
        return str(error.value)

    assert refusal(np.ma.masked_array(times, np.arange(60) == 5)) == refusal(gap)
    kept = hl.data.Samples({"x": y, "y": np.ma.masked_greater(y, 50)}, inputs=["x"], targets="y", missing="drop")
    assert sum(len(part) for part in (kept.train, kept.validation, kept.test)) == 51


def test_a_class_without_weight_has_none_of_the_balance(rng):
    n = 60
    table = {"x": rng.normal(size=n), "y": ["a", "b", "c"] * 20, "w": np.where(np.arange(n) % 3 == 2, 0.0, 1.0)}
    options = {"inputs": ["x"], "targets": "y", "task": "classification", "weight": "w", "balance_classes": True}
    samples = hl.data.Samples(table, split=hl.data.Split(by="random"), **options)
    arrays = samples.train.arrays()
    weights, labels = np.asarray(arrays["sample_weights"]), np.asarray(arrays["y"]).ravel()
    assert np.all(weights[labels == 2] == 0)
    for label in (0, 1):
        assert weights[labels == label].sum() == pytest.approx(len(weights) / 2)


def labels(table, **options):
    samples = hl.data.Samples({"x": np.arange(60.0), "y": np.cos(np.arange(60)), **table}, inputs=["x", "g"], targets="y", one_hots=[hl.data.OneHot("g")], **options)
    return [name.removeprefix("g=") for name in samples.preparation.input_names[1:]]


def test_numbers_as_labels_are_the_texts_that_a_csv_file_has(tmp_path):
    of_rows = np.arange(60) % 3
    for numbers in (np.array([100000, 200000, 7]), np.array([1e5, 2e5, 7.0]), np.array([2**53, 2**53 + 1, 2**53 + 2]), np.array([2**63, 2**63 + 1, 5], np.uint64)):
        wanted = sorted((str(int(n)) for n in numbers), key=int)
        assert sorted(labels({"g": numbers[of_rows]}), key=int) == wanted
    write_csv(tmp_path / "t.csv", {"x": np.arange(60.0), "g": np.array([100000, 200000, 300000])[of_rows], "y": np.cos(np.arange(60))})
    trained = hl.data.Samples(tmp_path / "t.csv", inputs=["x", "g"], targets="y", one_hots=[hl.data.OneHot("g")], length=2).preparation
    np.savez(tmp_path / "t.npz", x=np.arange(5.0), g=np.array([100000, 200000, 300000, 100000, 200000]))
    assert sum(len(block["rows"]) for block in trained.apply(tmp_path / "t.npz")) == 4
    split = hl.data.Split(by="group", validation_groups="200000", test_groups=["100000"])
    samples = hl.data.Samples(
        {"x": np.arange(60.0), "y": np.cos(np.arange(60)), "g": np.array([100000, 200000, 300000])[of_rows]}, inputs=["x"], targets="y", group="g", split=split
    )
    assert (len(samples.train), len(samples.validation), len(samples.test)) == (20, 20, 20)


def test_whole_numbers_of_a_csv_file_are_labels_without_a_point(tmp_path):
    cells = ["0.0", "1.0", "-2.000e+00", "3e+16", "007", "1e5", "+491", "1.5", "9007199254740993.0", "v1.0"]
    wanted = {"0", "1", "-2", "3e+16", "007", "1e5", "+491", "1.5", "9007199254740993.0", "v1.0"}
    table = {"x": np.arange(60.0), "y": np.cos(np.arange(60)), "g": np.array(cells)[np.arange(60) % 10]}
    write_csv(tmp_path / "t.csv", table)
    for source in (tmp_path / "t.csv", table):
        samples = hl.data.Samples(source, inputs=["x", "g"], targets="y", one_hots=[hl.data.OneHot("g")])
        assert {name[2:] for name in samples.preparation.input_names[1:]} == wanted

    write_csv(tmp_path / "k.csv", {**table, "k": np.array(["0.0", "1.0"])[np.arange(60) % 2]})
    preparation = hl.data.Samples(tmp_path / "k.csv", inputs=["x", "k"], targets="y", one_hots=[hl.data.OneHot("k")]).preparation

    def count(preparation):
        return sum(len(block["rows"]) for block in preparation.apply({"x": np.arange(3.0), "k": np.array([0.0, 1.0, 0.0])}))

    assert count(preparation) == 3
    # Kept by an earlier version.
    file = tmp_path / "preparation.json"
    preparation.save(file)
    new = file.read_text()
    file.write_text(new.replace('"0"', '"0.0"').replace('"1"', '"1.0"').replace("k=0", "k=0.0").replace("k=1", "k=1.0"))
    assert file.read_text() != new
    old = hl.data.Preparation.load(file)
    assert old.input_names == preparation.input_names == ["x", "k=0", "k=1"] and count(old) == 3
    old.save(file)
    assert file.read_text() == new
    file.write_text(new.replace('"1"', '"0.0"').replace("k=1", "k=0.0"))
    with pytest.raises(hl.UserError, match="must have categories and classes that differ"):
        hl.data.Preparation.load(file)


def test_groups_of_a_split_are_labels(tmp_path):
    write_csv(tmp_path / "t.csv", {"x": np.arange(60.0), "g": np.array(["1.0", "2.0", "3.0"])[np.arange(60) % 3], "y": np.cos(np.arange(60))})
    for one, other in (("2.0", "3.0"), ("2", "3")):
        samples = hl.data.Samples(tmp_path / "t.csv", inputs=["x"], targets="y", group="g", split=hl.data.Split(by="group", validation_groups=[one], test_groups=[other]))
        assert (len(samples.train), len(samples.validation), len(samples.test)) == (20, 20, 20)


def test_cycles_of_the_row_alone_read_no_column(tmp_path):
    table = {"y": np.cos(np.arange(60))}
    preparation = hl.data.Samples(table, inputs=["day"], targets="y", cycles=[hl.data.Cycle("day", period=6)], length=2).preparation
    (tmp_path / "t.csv").write_text(",a\n" + "0,x\n" * 5)
    np.savez(tmp_path / "t.npz", a=np.full(5, np.inf))
    wanted = [block["x"] for block in preparation.apply({"q": np.arange(5.0)})]
    assert sum(map(len, wanted)) == 4
    for rows in (tmp_path / "t.csv", tmp_path / "t.npz", {"q": np.array([np.inf] * 5)}):
        np.testing.assert_array_equal(np.concatenate([block["x"] for block in preparation.apply(rows)]), np.concatenate(wanted))


def test_a_column_that_is_missing_is_told_with_what_reads_it():
    for name, table, message in (
        ("x", {"y": np.arange(60.0), "z": np.arange(60.0)}, "the table must have the column 'x'. Received: 2 other columns. Try: did you mean"),
        ("l", {"z": np.arange(60.0), "x": np.arange(60.0)}, "the table must have the column 'load', which the lag 'l' reads. Received: 2 other columns. Try: the column as far as it is known"),
    ):  # fmt: skip
        preparation = hl.data.Samples({"x": np.arange(60.0) % 7, "load": np.cos(np.arange(60))}, inputs=[name], targets="load", lags=[hl.data.Lag("l", "load", 1)], length=2).preparation
        with pytest.raises(hl.UserError, match=message):
            list(preparation.apply(table))


def test_arrow_integers_are_labels_with_all_their_digits():
    pyarrow = pytest.importorskip("pyarrow")
    for column in (pyarrow.array([2**63, 2**63 + 1] * 30, pyarrow.uint64()), pyarrow.array([2**53, 2**53 + 1] * 30).dictionary_encode(), pyarrow.array([1e5, 2e5] * 30)):
        table = pyarrow.table({"x": np.arange(60.0), "y": np.cos(np.arange(60)), "g": column})
        samples = hl.data.Samples(table, inputs=["x", "g"], targets="y", one_hots=[hl.data.OneHot("g")])
        assert samples.preparation.input_names[1:] == [f"g={int(v)}" for v in column.to_pylist()[:2]]


def test_options_of_cells_are_those_of_every_table(tmp_path):
    hours = np.arange(200)
    ms = 1_704_067_200_000 + hours * 3_600_000
    base = {"x": np.sin(hours), "y": np.cos(hours)}
    recipe = dict(inputs=["x", "hour"], targets="y", time="t", length=2, cycles=[hl.data.Cycle("hour", of="hour_of_day")])
    wanted = bits(hl.data.Samples({**base, "t": ms.astype("datetime64[ms]")}, **recipe))
    np.savez(tmp_path / "t.npz", **base, t=ms)
    iso = np.datetime_as_string(ms.astype("datetime64[ms]").astype("datetime64[s]"))
    for table, options in (
        ({**base, "t": ms}, {"time_unit": "ms"}), (tmp_path / "t.npz", {"time_unit": "ms"}), ({**base, "t": iso}, {}),
        ({**base, "t": [f"{t[8:10]}/{t[5:7]}/{t[:4]} {t[11:]}" for t in iso]}, {"date_format": "dd/mm/yyyy"}),
    ):  # fmt: skip
        assert bits(hl.data.Samples(table, **recipe, **options)) == wanted
    for table in ({**base, "t": ms}, tmp_path / "t.npz"):
        with pytest.raises(hl.UserError, match=r"every time of column 't' must lie in the years 0 to 9999\. Received: 1704067200000 in row 0.*time_unit = \"ms\""):
            hl.data.Samples(table, **recipe)
    with pytest.raises(hl.UserError, match="time_unit must be one of s, ms, us, ns. Received: 'fortnight'"):
        hl.data.Samples({**base, "t": ms}, time_unit="fortnight", **recipe)
    with pytest.raises(hl.UserError, match="every cell of column 't' must be a time. Received: 'soon' in row 0"):
        hl.data.Samples({**base, "t": ["soon"] * 200}, **recipe)
    c = ["a", "b", "-", "a"] * 50
    samples = hl.data.Samples({**base, "c": c}, inputs=["x", "c"], targets="y", one_hots=[hl.data.OneHot("c")], missing="mean", missing_values="-")
    assert samples.preparation.input_names == ["x", "c=a", "c=b"]


def test_a_text_where_several_may_be_meant():
    table = {"temp": np.sin(np.arange(60)), "y": np.cos(np.arange(60))}
    samples = hl.data.Samples(table, inputs="temp", targets="y", kept="y")
    assert samples.preparation.input_names == ["temp"] and len(samples.kept(samples.test, "y")) == len(samples.test)
    for given in (-1, 0.5, None):
        with pytest.raises(hl.UserError, match="memory_mb must be a whole number of megabytes, not negative. Received: "):
            hl.data.Samples(table, inputs="temp", targets="y", memory_mb=given)


def test_new_rows_come_as_they_are_asked_for():
    samples = hl.data.Samples({"x": np.sin(np.arange(60)), "y": np.cos(np.arange(60))}, inputs="x", targets="y", length=3)
    rows = np.sin(np.arange(50000))
    rows[9000] = np.inf
    blocks = samples.preparation.apply({"x": rows}, 1000)
    first = next(blocks)
    assert iter(blocks) is blocks and np.asarray(first["rows"]).tolist() == list(range(2, 1002))
    with pytest.raises(hl.UserError, match="row 9000"):  # not before it is read
        list(blocks)


def test_a_preparation_is_saved_whole_or_not_at_all(tmp_path):
    preparation = hl.data.Samples({"x": np.sin(np.arange(60)), "y": np.cos(np.arange(60))}, inputs="x", targets="y").preparation
    path = tmp_path / "p.json"
    preparation.save(path)
    text = path.read_text()
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(hl.UserError, match="File too large"):
            preparation.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == text and [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_threads_share_the_blocks_of_one_reading():
    table = {"x": np.arange(6000.0), "y": np.cos(np.arange(6000.0))}
    preparation = hl.data.Samples(table, inputs=["x"], targets="y", length=2).preparation
    wanted = [block["rows"].tolist() for block in preparation.apply(table, 16)]
    blocks, got = preparation.apply(table, 16), []
    threads = [threading.Thread(target=lambda: got.extend(block["rows"].tolist() for block in blocks)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == wanted
