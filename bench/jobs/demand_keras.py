#!/usr/bin/env python3
"""The demand forecast of examples/demand.toml in Keras: same columns, windows, split and standardisation, Keras' own defaults.

LSTM(32) and Dense(1), glorot and orthogonal initial weights, Adam with Keras' epsilon, batches of 256, 40 epochs, the epoch with
the best validation MAE. Prints one line a seed, and first the error of ridge regression on the same arrays, which must be that
of `hotloop train examples/demand.toml` if the arrays are the same.

usage: demand_keras.py TABLE.csv [seed ...]      needs keras, numpy and the backend that KERAS_BACKEND names
"""
import csv
import sys
import tempfile
import time

import keras
import numpy as np

LENGTH, LAGS, SPLIT = 48, (48, 336), (0.7, 0.85)


def features(path):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([float(row[name]) for row in rows]) for name in ("Demand", "WorkDay", "Temperature")}
    n = len(rows)
    row = np.arange(n)
    day, week = row % 48, (row // 48 + 2) % 7
    columns = [column["Temperature"], column["WorkDay"]]
    for k in (1, 2):
        columns += [np.sin(2 * np.pi * k * day / 48), np.cos(2 * np.pi * k * day / 48)]
    columns += [np.sin(2 * np.pi * week / 7), np.cos(2 * np.pi * week / 7)]
    for lag in LAGS:
        columns.append(np.concatenate([np.full(lag, np.nan), column["Demand"][:-lag]]))
    return np.stack(columns, 1), column["Demand"]


def parts(path):
    x, y = features(path)
    n = len(y)
    ends = np.arange(max(LAGS) + LENGTH - 1, n)
    borders = [int(np.floor(fraction * n + 1e-6)) for fraction in SPLIT]
    train = ends[ends < borders[0]]
    mean, std = x[train].mean(0), x[train].std(0)
    target_mean, target_std = y[train].mean(), y[train].std()
    scaled, target = ((x - mean) / std).astype(np.float32), ((y - target_mean) / target_std).astype(np.float32)

    def part(where):
        return np.stack([scaled[end - LENGTH + 1:end + 1] for end in where]), target[where][:, None]

    return (part(train), part(ends[(ends >= borders[0]) & (ends < borders[1])]), part(ends[ends >= borders[1]])), target_std


def ridge_error(train, validation, test):
    flat = [x.reshape(len(x), -1).astype(np.float64) for x, _ in (train, validation, test)]
    gram, moment = flat[0].T @ flat[0], flat[0].T @ train[1].astype(np.float64)
    fits = [np.linalg.solve(gram + penalty * np.eye(len(gram)), moment) for penalty in (1, 10, 100, 1000)]
    best = min(fits, key=lambda w: np.abs(flat[1] @ w - validation[1]).mean())
    return np.abs(flat[2] @ best - test[1]).mean()


def main():
    (train, validation, test), scale = parts(sys.argv[1])
    print(f"keras {keras.__version__}, backend {keras.backend.backend()}; {len(train[0])} training windows")
    print(f"ridge regression: test MAE {ridge_error(train, validation, test) * scale:.4f}", flush=True)
    weights = tempfile.TemporaryDirectory()
    best_weights = f"{weights.name}/best.weights.h5"
    for seed in map(int, sys.argv[2:] or ["0", "1", "2", "3", "4"]):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.layers.Input((LENGTH, 10)), keras.layers.LSTM(32), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mse", metrics=["mae"])
        keep = keras.callbacks.ModelCheckpoint(best_weights, monitor="val_mae", save_best_only=True,
                                               save_weights_only=True)
        start = time.perf_counter()
        history = model.fit(*train, validation_data=validation, batch_size=256, epochs=40, verbose=0, callbacks=[keep])
        seconds = (time.perf_counter() - start) / 40
        model.load_weights(best_weights)
        error = np.abs(model.predict(test[0], batch_size=256, verbose=0) - test[1]).mean() * scale
        best = int(np.argmin(history.history["val_mae"])) + 1
        print(f"seed {seed}: test MAE {error:.4f}, best epoch {best}, {seconds:.2f} s an epoch", flush=True)


if __name__ == "__main__":
    main()
