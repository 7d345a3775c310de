"""The demand forecast through the Python interface: electricity demand of Victoria a day ahead.

usage: python -m hotloop.demo [TABLE.csv] [--epochs N] [--seed S] [--threads T]

The table is fetched by scripts/fetch_elecdemand.py. The job is that of examples/demand.toml: 48 half-hours of ten inputs that
are known a day before (the temperature forecast taken as perfect), LSTM(32), Adam; and so are the samples and the results, to the bit.
"""

import argparse
import pathlib
import time

import numpy as np

import hotloop as hl


def demand_samples(table):
    """Windows of 48 rows, split by time and standardised over the training rows."""
    return hl.data.Samples(
        table,
        inputs=["Temperature", "WorkDay", "day", "week", "demand_yesterday", "demand_last_week"],
        targets="Demand",
        length=48,
        lags=[hl.data.Lag("demand_yesterday", "Demand", 48), hl.data.Lag("demand_last_week", "Demand", 336)],
        cycles=[
            hl.data.Cycle("day", period=48, harmonics=2),
            hl.data.Cycle("week", step=48, period=7, phase=2),  # the table begins on a Wednesday
        ],
        kept=["Demand", "demand_last_week"],
    )


def main(arguments=None):
    """Trains, tests, and prints the result beside that of last week's value."""
    parser = argparse.ArgumentParser(prog="python -m hotloop.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", default="data/elecdemand.csv")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    if not pathlib.Path(options.table).exists():
        parser.error(f"the table must exist: {options.table}. Try: scripts/fetch_elecdemand.py")
    samples = demand_samples(options.table)
    features = len(samples.preparation.input_names)
    print(f"{samples.describe()}, of 48 x {features}")

    model = hl.nn.Sequential(hl.nn.LSTM(features, 32), hl.nn.Last(), hl.nn.Linear(32, 1))
    start = time.perf_counter()
    run = hl.fit(model, samples, optimizer=hl.optim.Adam(1e-3), batch_size=256, epochs=options.epochs, seed=options.seed, generator="torch", threads=options.threads)
    seconds = time.perf_counter() - start

    predicted = np.asarray(samples.preparation.unscale(run.predict(samples.test)))[:, 0]
    demand, last_week = (np.asarray(samples.kept(samples.test, name)) for name in ("Demand", "demand_last_week"))
    times = run.times
    print(f"{run.status} in {seconds:.2f} s, of which compiling {times['compile_s']:.2f} s and steps {times['steps_s']:.2f} s; best epoch {run.best_epoch} of {len(run.history)}")
    print(f"test MAE {np.abs(predicted - demand).mean():.4f} GW; same half-hour last week {np.abs(last_week - demand).mean():.4f} GW")
    return 0 if run.status == "finished" else 1


if __name__ == "__main__":
    raise SystemExit(main())
