#!/usr/bin/env python3
"""What a run is good for: predictions, evaluations of other tables, exports.

usage: predict_test.py HOTLOOP [unittest arguments]
"""
import csv
import json
import math
import pathlib
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import program
import series
from program import RunCase, hotloop


class Predict(RunCase):
    def test_is_the_evaluation(self):
        out = self.folder / "out.csv"
        result = hotloop("predict", self.run_folder, self.folder / "series.csv", "-o", out)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        truth = [float(line.split(",")[0]) for line in (self.folder / "series.csv").read_text().splitlines()[1:]]
        predicted = {int(row["row"]): float(row["load"]) for row in csv.DictReader(out.read_text().splitlines())}
        self.assertEqual(sorted(predicted), list(range(6, 90)))  # 3 rows of lag, windows of 4
        metrics = json.loads((self.run_folder / "metrics.json").read_text())
        errors = [abs(predicted[row] - truth[row]) for row in range(76, 90)]  # the last 15 %
        self.assertEqual(len(errors), metrics["samples"]["test"])
        self.assertAlmostEqual(sum(errors) / len(errors), metrics["test"], delta=1e-6)
        self.assertEqual(
            re.sub(r"\s+", " ", result.stdout),
            f"84 predictions of 90 rows written to {out} 3 rows before a whole window, which takes 4 rows one after another with all inputs "
            f"3 rows without all inputs, the last: no 'load_lag' at {self.folder / 'series.csv'}:4 ",
        )

    def test_standard_output_and_json(self):
        result = hotloop("predict", self.run_folder, self.folder / "series.csv", "--json")
        self.assertEqual(result.stdout.splitlines()[0], "row,load")
        self.assertEqual(json.loads(result.stderr), {"rows": 90, "predictions": 84, "undefined_rows": 3, "out": ""})

    def test_a_row_alone_or_in_a_longer_table_is_predicted_the_same(self):
        lines = (self.folder / "series.csv").read_text().splitlines(keepends=True)
        (self.folder / "part.csv").write_text("".join(lines[:31]))
        whole = hotloop("predict", self.run_folder, self.folder / "series.csv").stdout
        part = hotloop("predict", self.run_folder, self.folder / "part.csv").stdout
        self.assertEqual(whole[:len(part)], part)

    def test_times_have_as_many_digits_as_they_need(self):
        folder = self.folder / "times"
        folder.mkdir()
        config = series.write(folder, "interp")
        config.write_text(config.read_text().replace("[[data.lag]]", 'time = "when"\ntime_step = "any"\n\n[[data.lag]]', 1))
        values = [row.split(",")[0] for row in (folder / "series.csv").read_text().splitlines()[1:]]
        # A microsecond, and milliseconds as a number.
        for unit, when, wanted in (("us", lambda i: 1704067200000000 + 21 * i, "2024-01-01T00:00:00.001869Z"),
                                   ("ms", lambda i: 1704067200000 + 500 * i, "2024-01-01T00:00:44.5Z")):
            (folder / "series.csv").write_text("load,when\n" + "".join(f"{v},{when(i)}\n" for i, v in enumerate(values)))
            result = hotloop("train", config, "--out", folder / "run", "--overwrite", "--set", f"data.time_unit={unit}")
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = list(csv.DictReader(hotloop("predict", folder / "run", folder / "series.csv").stdout.splitlines()))
            self.assertEqual((lines[-1]["row"], lines[-1]["when"]), ("89", wanted))
            self.assertEqual(len({line["when"] for line in lines}), len(lines))

    def test_bad_rows_leave_nothing_behind(self):
        text = (self.folder / "series.csv").read_text()
        (self.folder / "bad.csv").write_text(text + "many,row 90\n")
        out = self.folder / "kept.csv"
        out.write_text("what was there")
        before = set(self.folder.iterdir())
        result = hotloop("predict", self.run_folder, self.folder / "bad.csv", "-o", out, "--overwrite")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"every cell of column 'load' must be a finite number\. Received: 'many' at .*bad\.csv:92\.")
        self.assertEqual(out.read_text(), "what was there")
        self.assertEqual(set(self.folder.iterdir()), before)

    def test_the_output_is_no_input(self):
        table = self.folder / "own.csv"
        text = (self.folder / "series.csv").read_text()
        table.write_text(text)
        link, hard = self.folder / "link.csv", self.folder / "hard.csv"
        link.symlink_to("own.csv")
        hard.hardlink_to(table)
        for out in ["own.csv", "../" + self.folder.name + "/./own.csv", link, hard]:
            result = hotloop("predict", "runs/job", "own.csv", "-o", out, "--overwrite", cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (
                2, f"hotloop: [predict] the output must be another file than the inputs. Received: {out}, which is own.csv. Try: another name.\n"))
        (self.folder / "hard.toml").hardlink_to(self.run_folder / "config.toml")
        result = hotloop("predict", "runs/job", "own.csv", "-o", "hard.toml", "--overwrite", cwd=self.folder)
        self.assertIn("the output must be another file than the inputs. Received: hard.toml, which is runs/job/config.toml.", result.stderr)
        self.assertEqual(table.read_text(), text)

    def test_a_file_is_replaced_only_where_that_is_wanted(self):
        out = self.folder / "old.csv"
        out.write_text("what was there")
        result = hotloop("predict", "runs/job", "series.csv", "-o", "old.csv", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (
            2, "hotloop: [predict] the file to write must not exist. Received: old.csv. Try: another name, or --overwrite.\n"))
        self.assertEqual(out.read_text(), "what was there")
        result = hotloop("predict", "runs/job", "series.csv", "-o", "old.csv", "--overwrite", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(out.read_text().startswith("row,load\n"))
        for other in ["runs", "/dev/null"]:
            for overwrite in [[], ["--overwrite"]]:
                result = hotloop("predict", "runs/job", "series.csv", "-o", other, *overwrite, cwd=self.folder)
                self.assertEqual((result.returncode, result.stderr), (
                    2, f"hotloop: [predict] the output must be a file. Received: {other}. Try: another name, or no -o for the standard output.\n"))

    def test_the_output_is_not_in_the_run(self):
        before = {p: p.read_bytes() for p in self.run_folder.rglob("*") if p.is_file()}
        (self.folder / "link").symlink_to("runs/job")
        (self.folder / "link.json").symlink_to("runs/job/metrics.json")
        for out in ["runs/job/config.toml", "runs/job/metrics.json", "runs/../runs/job/baselines.json", "runs/job/new.csv", "runs/job/checkpoints/new.csv", "link/new.csv", "link.json"]:
            for overwrite in [[], ["--overwrite"]]:
                result = hotloop("predict", "runs/job", "series.csv", "-o", out, *overwrite, cwd=self.folder)
                self.assertEqual((result.returncode, result.stderr), (
                    2, f"hotloop: [predict] the output must lie outside of the run's folder. Received: {out}. Try: another folder.\n"))
        result = hotloop("predict", ".", "../../series.csv", "-o", "new.csv", cwd=self.run_folder)
        self.assertIn("outside of the run's folder", result.stderr)
        self.assertEqual(hotloop("predict", "runs/job", "series.csv", "-o", "runs/job.csv", cwd=self.folder).returncode, 0)
        self.assertEqual({p: p.read_bytes() for p in self.run_folder.rglob("*") if p.is_file()}, before)

    def test_unwritable_output(self):
        result = hotloop("predict", self.run_folder, self.folder / "series.csv", "-o", self.folder / "nowhere" / "out.csv")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\[predict\] the folder must be writable\. Received: .*No such file or directory")


class MoreOutputsThanClasses(RunCase):
    """A model may have outputs that are no class of its table."""

    write_job = staticmethod(series.write_utterances)

    def test_are_refused_in_training(self):
        for units in (2, 5):
            result = hotloop("train", "job.toml", "--set", f"model.4.units={units}", "--set", "train.class_weights=[]", "--out", "runs/other", cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (
                2, f"hotloop: [--set model.4.units={units} [[model]]] 'units' of layer linear must be 3, as many as there are classes of 'voice'. "
                   f"Received: {units} outputs. Try: units = 3.\n"))
            self.assertFalse((self.folder / "runs" / "other").exists())

    def test_have_no_name_but_a_number(self):
        run = self.folder / "runs" / "older"
        shutil.copytree(self.run_folder, run)
        preparation = json.loads((run / "preparation.json").read_text())
        self.assertEqual(preparation["classes"], ["x", "y", "z"])
        (run / "preparation.json").write_text(json.dumps(preparation | {"classes": ["x"]}))
        wanted = list(csv.DictReader(hotloop("predict", self.run_folder, self.folder / "utterances.csv").stdout.splitlines()))
        result = hotloop("predict", run, self.folder / "utterances.csv")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[0], "row,utterance,voice,score_x,score_1,score_2")
        rows = list(csv.DictReader(result.stdout.splitlines()))
        self.assertEqual([row["voice"] for row in rows], [{"x": "x", "y": "1", "z": "2"}[row["voice"]] for row in wanted])
        self.assertTrue({row["voice"] for row in rows} & {"1", "2"})


class Distributions(RunCase):
    """Losses whose outputs are quantiles, or parameters of a distribution."""

    def train(self, name, *settings):
        run = self.folder / "runs" / name
        return run, hotloop("train", self.config, "--out", run, "--json", *(word for s in settings for word in ("--set", s)))

    def rows(self, run):
        result = hotloop("predict", run, self.folder / "series.csv")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()[0], {int(r["row"]): r for r in csv.DictReader(result.stdout.splitlines())}

    def truth(self):
        return [float(line.split(",")[0]) for line in (self.folder / "series.csv").read_text().splitlines()[1:]]

    def test_quantiles(self):
        run, result = self.train("quantiles", "loss.type=quantile", "model.2.units=3")
        self.assertEqual(result.returncode, 0, result.stderr)
        metrics, truth = json.loads(result.stdout), self.truth()
        header, rows = self.rows(run)
        self.assertEqual(header, "row,load,load_q10,load_q90")
        # The metric is the median's, in the table's unit, beside the baselines; and the quantiles are what the calibration counts.
        error = sum(abs(float(rows[r]["load"]) - truth[r]) for r in range(76, 90)) / 14
        self.assertAlmostEqual(metrics["test"], error, delta=1e-5)
        self.assertEqual([b["name"] for b in metrics["baselines"]], ["three rows ago", "ridge regression on the window"])
        self.assertEqual([(q["quantile"], q["level"]) for q in metrics["calibration"]], [("q10", 0.1), ("q50", 0.5), ("q90", 0.9)])
        for quantile, column in zip(metrics["calibration"], ["load_q10", "load", "load_q90"]):
            self.assertAlmostEqual(quantile["share"], sum(truth[r] <= float(rows[r][column]) for r in range(76, 90)) / 14)
        self.assertRegex(result.stderr, r"\nTargets below the forecast's quantiles, of 14\n  q10 +[0-9.]+ %, of 10 % that should be\n  q50 ")
        again = json.loads(hotloop("eval", run, "--json").stdout)
        self.assertEqual((again["test"], again["calibration"]), (metrics["test"], metrics["calibration"]))
        self.assertIn("Targets below", hotloop("eval", run).stdout)
        self.assertIn("Targets below", (run / "report.html").read_text())
        picture = (run / "forecast.svg").read_text()
        self.assertIn(">q10 to q90</text>", picture)
        self.assertEqual(re.search(r'<path d="(M[^"]*Z)" class="hl-band"/>', picture).group(1).count("L"), 2 * 14 - 1)

    def test_several_steps_of_a_normal_distribution(self):
        run, result = self.train("gaussian", "loss.type=gaussian", "window.horizon_steps=2", "model.2.units=4", "train.metric=loss")
        self.assertEqual(result.returncode, 0, result.stderr)
        header, rows = self.rows(run)
        self.assertEqual(header, "row," + ",".join(f"load_{step}{end}" for step in (1, 2) for end in ("", "_std", "_q10", "_q90")))
        for row in rows.values():
            for step in ("load_1", "load_2"):
                mean, std = float(row[step]), float(row[step + "_std"])
                self.assertGreater(std, 0)
                self.assertAlmostEqual(float(row[step + "_q90"]) - mean, 1.2815516 * std, delta=1e-4 * std)
                self.assertAlmostEqual(mean - float(row[step + "_q10"]), 1.2815516 * std, delta=1e-4 * std)
        # The metric is the loss, in the model's units; baselines have no such outputs.
        metrics = json.loads(result.stdout)
        self.assertEqual((metrics["metric"], metrics["baselines"]), ("gaussian", []))
        truth, std = self.truth(), metrics["scales"]["target"]["std"]
        loss = [
            0.5 * ((truth[r + k] - float(rows[r][f"load_{k + 1}"])) / s) ** 2 + math.log(s / std) + 0.5 * math.log(2 * math.pi)
            for r in range(77, 89) for k in (0, 1) for s in [float(rows[r][f"load_{k + 1}_std"])]
        ]
        self.assertAlmostEqual(metrics["test"], sum(loss) / len(loss), delta=0.2)
        self.assertIn("gaussian on the", result.stderr)
        self.assertNotIn("in units of", result.stderr)

    def test_counts_are_not_standardised(self):
        result = hotloop("train", self.config, "--set", "loss.type=poisson")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r'must go with targets as they are: its targets are at least 0\. Received: "poisson" and standardised targets\. Try: standardize_targets = false in \[window\]\.')
        text = (self.folder / "series.csv").read_text().splitlines()
        counts = [f"{max(0, round(float(line.split(',')[0])))},x" for line in text[1:]]
        (self.folder / "counts.csv").write_text("\n".join([text[0], *counts]) + "\n")
        run, result = self.train("counts", "data.file=counts.csv", "loss.type=negative_binomial", "model.2.units=2", "window.standardize_targets=false")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["scales"]["target"], {"mean": 0.0, "std": 1.0})
        self.assertNotIn("calibration", json.loads(result.stdout))
        header, rows = self.rows(run)
        self.assertEqual(header, "row,load,load_std")
        self.assertTrue(all(float(row["load"]) > 0 and float(row["load_std"]) >= float(row["load"]) ** 0.5 for row in rows.values()))

    def test_outputs_that_are_missing(self):
        result = hotloop("train", self.config, "--set", "loss.type=quantile")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\[quantile\] the prediction must have 3 outputs for each number of the target.* Try: 3 outputs of the last layer \(units = 3\)\.")


class SeveralOutputs(RunCase):
    """Targets and steps of a horizon, each by itself."""

    TARGETS = ["--set", "data.target=['load', 'note']", "--set", "data.lag=[{name='load_lag',column='load',steps=3},{name='note_lag',column='note',steps=3}]"]
    COLUMNS = "{type='column',column=['load_lag','note_lag'],name='three rows ago'}"

    def train(self, name, *settings):
        text = (self.folder / "series.csv").read_text().splitlines()
        rows = [f"{line.split(',')[0]},{i * i % 7}" for i, line in enumerate(text[1:])]
        (self.folder / "series.csv").write_text("\n".join(["load,note", *rows]) + "\n")
        run = self.folder / "runs" / name
        result = hotloop("train", self.config, "--out", run, "--json", *settings)
        return run, result

    def truths(self):
        return [[float(v) for v in line.split(",")] for line in (self.folder / "series.csv").read_text().splitlines()[1:]]

    def test_targets(self):
        run, result = self.train("targets", *self.TARGETS, "--set", f"baseline=[{self.COLUMNS},{{type='ridge'}}]", "--set", "model.2.units=2")
        self.assertEqual(result.returncode, 0, result.stderr)
        table = re.search(r"(?s)\nmae of each target, in its own unit\n(.*?)\n\n", result.stderr).group(1).splitlines()
        self.assertEqual(table[0].split(), ["this", "model", "three", "rows..", "ridge", "regr.."])
        outputs = json.loads(result.stdout)["outputs"]
        self.assertEqual([(o["target"], o["step"]) for o in outputs], [("load", 1), ("note", 1)])
        for line, output in zip(table[1:], outputs):
            values = [output["test"], *(b["test"] for b in output["baselines"])]
            self.assertEqual(line.split(), [output["target"], *(f"{v:.4f}" for v in values)])
        # The naive forecast of each, in its unit; and all pooled as the loss sees them, over their deviations.
        truth = self.truths()
        for k, output in enumerate(outputs):
            naive = sum(abs(truth[row][k] - truth[row - 3][k]) for row in range(76, 90)) / 14
            self.assertAlmostEqual(output["baselines"][0]["test"], naive, delta=1e-6)
        predicted = hotloop("predict", run, self.folder / "series.csv")
        rows = {int(r["row"]): r for r in csv.DictReader(predicted.stdout.splitlines())}
        for k, name in enumerate(["load", "note"]):
            own = sum(abs(float(rows[row][name]) - truth[row][k]) for row in range(76, 90)) / 14
            self.assertAlmostEqual(outputs[k]["test"], own, delta=1e-5)
        self.assertIn("three rows ago", json.dumps(json.loads(result.stdout)["baselines"]))
        again = json.loads(hotloop("eval", run, "--json").stdout)
        self.assertEqual(again["outputs"], outputs)
        self.assertIn("mae of each target, in its own unit", (run / "report.html").read_text())

    def test_steps(self):
        run, result = self.train("steps", "--set", "window.horizon=1", "--set", "window.horizon_steps=12", "--set", "model.2.units=12")
        self.assertEqual(result.returncode, 0, result.stderr)
        outputs = json.loads(result.stdout)["outputs"]
        self.assertEqual([(o["target"], o["step"]) for o in outputs], [("load", step) for step in range(1, 13)])
        mean = sum(o["test"] for o in outputs) / 12
        self.assertAlmostEqual(mean, json.loads(result.stdout)["test"], delta=1e-5)
        self.assertEqual(re.findall(r"\n  step (\d+) ", result.stderr), ["1", "2", "4", "5", "7", "8", "10", "12"])
        self.assertIn("(some of 12 steps and 3 results: metrics.json has them all)", result.stderr)

    def test_one_column_for_each_target(self):
        _, result = self.train("columns", *self.TARGETS, "--set", "baseline=[{type='column',column='load_lag'}]", "--set", "model.2.units=2")
        self.assertEqual(result.returncode, 2)
        self.assertIn("'column' must be a list of one for each target. Received: 1 for 2 targets.", result.stderr)


class EvalOfAnotherTable(RunCase):
    """`eval --data`: all samples of the table, by what was fitted in training."""

    CATEGORIES = """
[data]
file = "weather.csv"
target = "load"
inputs = ["load_lag", "sky", "temp"]
missing = "mean"

[[data.lag]]
name = "load_lag"
column = "load"
steps = 1

[[data.one_hot]]
column = "sky"

[window]
length = 2

[[model]]
type = "last"

[[model]]
type = "linear"
units = 1

[train]
epochs = 2
backend = "interp"

[[baseline]]
type = "column"
column = "load_lag"

[[baseline]]
type = "ridge"
"""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write_weather("weather.csv", ["clear", "fog", "rain"], 0)
        (cls.folder / "weather.toml").write_text(cls.CATEGORIES)
        result = hotloop("train", "weather.toml", cwd=cls.folder)
        assert result.returncode == 0, result.stderr

    @classmethod
    def write_weather(cls, name, skies, shift):
        rows = [f"{math.sin(t * 0.9) + shift:.6f},{skies[(t * 7 + t // 4) % len(skies)]},{'' if t % 7 == 3 else t % 5}" for t in range(60)]
        (cls.folder / name).write_text("\n".join(["load,sky,temp", *rows, ""]))

    def evaluated(self, run, table):
        result = hotloop("eval", run, "--data", table, "--json", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def mean_error(self, run, table):
        """Of what `predict` gives, against the table."""
        out = self.folder / "predicted.csv"
        out.unlink(missing_ok=True)
        self.assertEqual(hotloop("predict", run, table, "-o", out, cwd=self.folder).returncode, 0)
        truth = [float(row["load"]) for row in csv.DictReader((self.folder / table).read_text().splitlines())]
        errors = [abs(float(row["load"]) - truth[int(row["row"])]) for row in csv.DictReader(out.read_text().splitlines())]
        return len(errors), sum(errors) / len(errors)

    def check(self, run, table):
        evaluated = self.evaluated(run, table)
        samples, error = self.mean_error(run, table)
        self.assertEqual(evaluated["samples"], samples)
        self.assertAlmostEqual(evaluated["test"], error, delta=1e-5 * error)
        return evaluated

    def test_a_shifted_table_is_judged_by_the_trainings_scales(self):
        self.write_weather("shifted.csv", ["clear", "fog", "rain"], 5)
        near, far = self.check("runs/weather", "weather.csv"), self.check("runs/weather", "shifted.csv")
        self.assertGreater(far["test"], near["test"] + 0.5)
        # Ridge regression is the one that was fitted, too, and the lag knows the shift.
        column, ridge = (b["test"] for b in far["baselines"])
        self.assertAlmostEqual(column, near["baselines"][0]["test"], places=5)
        self.assertNotAlmostEqual(ridge, near["baselines"][1]["test"], places=2)

    def test_a_table_without_one_of_the_categories(self):
        self.write_weather("dry.csv", ["clear", "fog"], 0)
        self.check("runs/weather", "dry.csv")
        self.write_weather("hail.csv", ["clear", "fog", "hail"], 0)
        result = hotloop("eval", "runs/weather", "--data", "hail.csv", cwd=self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("every category of column 'sky' must be one of the training rows. Received: 'hail' at hail.csv:", result.stderr)

    def test_every_window_of_it_whatever_the_stride(self):
        (self.folder / "strides.toml").write_text(self.CATEGORIES.replace("length = 2", "length = 2\nstride = 3"))
        result = hotloop("train", "strides.toml", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.check("runs/strides", "weather.csv")["samples"], 58)  # of 60 rows, one for the lag and one for the window
        result = hotloop("eval", "runs/strides", cwd=self.folder)
        self.assertIn("the same to the last bit", result.stdout)

    def test_says_of_what(self):
        text = hotloop("eval", self.run_folder, "--data", self.folder / "series.csv").stdout
        self.assertIn("mae on the 84 windows of series.csv, in units of load\n", text)
        self.assertNotIn("The run recorded", text)

    def test_ridge_regression_that_was_not_stored_is_left_out(self):
        run = self.folder / "runs" / "without"
        shutil.copytree(self.folder / "runs" / "weather", run)
        (run / "baselines.json").unlink()
        result = hotloop("eval", run)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Ridge regression is left out: the run holds no baselines.json to take it from.\n", result.stdout)
        self.assertIn("the same to the last bit", result.stdout)
        self.assertEqual(json.loads(hotloop("eval", run, "--json").stdout)["left_out"], "ridge regression: the run holds no baselines.json to take it from")
        self.assertNotIn("left_out", json.loads(hotloop("eval", "runs/weather", "--json", cwd=self.folder).stdout))
        (run / "baselines.json").write_text('[{"lambda": 1}]')
        result = hotloop("eval", run)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\[run\] .*baselines\.json must hold the ridge regressions of the run's configuration\. Received: .*Try: ")

    def test_a_table_that_is_too_short(self):
        (self.folder / "short.csv").write_text("load,sky,temp\n1,clear,2\n")
        result = hotloop("eval", "runs/weather", "--data", "short.csv", cwd=self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("[window] the table must be at least as long as a window and its horizon. Received: 1 rows", result.stderr)


class Export(RunCase):
    def test_the_c_compiles_and_gives_numbers(self):
        out = self.folder / "c"
        result = hotloop("export", self.run_folder, "-o", out, "--name", "load")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["load.c", "load.h", "load.o", "preparation.json"])
        (out / "main.c").write_text(
            '#include <stdio.h>\n#include "load.h"\n'
            "int main(void) { static load_voice v; float x[load_INPUTS] = {0}, y[load_OUTPUTS];\n"
            '  load_init(&v, NULL); load_step(&v, x, y); printf("%d %d %g\\n", load_INPUTS, load_OUTPUTS, y[0]); return 0; }\n')
        subprocess.run(["cc", "-O2", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-o", "main", "main.c", "load.c", "-lm"],
                       cwd=out, check=True)
        printed = subprocess.run(["./main"], cwd=out, check=True, capture_output=True, text=True).stdout
        inputs, outputs, first = printed.split()
        subprocess.run(["cc", "-o", "linked", "main.c", "load.o"], cwd=out, check=True)
        self.assertEqual(subprocess.run(["./linked"], cwd=out, check=True, capture_output=True, text=True).stdout, printed)
        self.assertEqual(outputs, "1")
        self.assertGreater(int(inputs), 0)
        self.assertNotEqual(float(first), 0)  # the biases of a trained model
        again = hotloop("export", self.run_folder, "-o", out)
        # Nothing is written over unasked.
        self.assertEqual((again.returncode, again.stderr), (
            2, f"hotloop: [export] the folder to write must not exist. Received: {out}. Try: another name, or --overwrite.\n"))
        (out / "load.h").write_text("")
        again = hotloop("export", self.run_folder, "-o", out, "--name", "load", "--target", "aarch64", "--overwrite")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("load_step", (out / "load.h").read_text())
        # The object is another one, by the machine in its header (EM_AARCH64); what is not of the export stays.
        self.assertEqual(((out / "load.o").read_bytes()[18], (out / "main.c").exists()), (183, True))

    def test_memory_that_is_not_aligned_is_refused(self):
        out = self.folder / "aligned"
        self.assertEqual(hotloop("export", self.run_folder, "-o", out, "--name", "load").returncode, 0)
        (out / "main.c").write_text(
            '#include <stdio.h>\n#include <stdlib.h>\n#include "load.h"\n'
            "int main(void) {\n"
            "  char* memory = aligned_alloc(64, sizeof(load_voice) + 64); char* other = aligned_alloc(64, sizeof(load_weights) + 64);\n"
            "  load_params params = {0};\n"
            "  for (int at = 0; at < 64; at += 16)\n"
            '    printf("%d %d %d ", load_init((load_voice*)(memory + at), NULL),\n'
            "           load_init((load_voice*)memory, (load_weights*)(other + at)),\n"
            "           at == 0 ? 0 : load_prepare((load_weights*)(other + at), &params));\n"
            '  printf("%d %d\\n", load_init(NULL, NULL), load_prepare(NULL, &params)); return 0; }\n')
        for optimize in ["-O0", "-O3"]:
            flags = ["-march=native", "-ffp-contract=off", "-fno-math-errno", "-w"]
            subprocess.run(["cc", optimize, *flags, "-o", "compiled", "main.c", "load.c"], cwd=out, check=True)
            subprocess.run(["cc", optimize, "-w", "-o", "linked", "main.c", "load.o"], cwd=out, check=True)
            for built in ["./compiled", "./linked"]:
                printed = subprocess.run([built], cwd=out, check=True, capture_output=True, text=True).stdout
                self.assertEqual(printed, "0 0 0 " + 3 * "-2 -2 -2 " + "-2 -2\n")

    def test_the_header_says_how_the_source_is_compiled(self):
        out = self.folder / "flags"
        result = hotloop("export", self.run_folder, "-o", out, "--name", "load")
        (flags,) = re.findall(r"(?m)^//   (-O3 .*)$", (out / "load.h").read_text())
        self.assertIn(f"cc {flags} -c load.c", result.stdout)
        subprocess.run(["cc", *flags.split(), "-shared", "-fPIC", "-nostdlib", "-o", "load.so", "load.c"], cwd=out, check=True)
        called = subprocess.run(["nm", "-D", "--undefined-only", "load.so"], cwd=out, check=True, capture_output=True, text=True).stdout
        self.assertLessEqual({name.split("@")[0] for name in called.split() if len(name) > 1}, {"memcpy", "memset"})


class PyTorch(RunCase):
    def test_load_state_dict_takes_the_parameters(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        data = (self.run_folder / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = {k: v for k, v in json.loads(data[8:8 + length]).items() if k != "__metadata__"}
        state = {}
        for name, entry in header.items():
            start, end = (8 + length + o for o in entry["data_offsets"])
            state[name] = torch.frombuffer(bytearray(data[start:end]), dtype=torch.float32).reshape(entry["shape"])

        class Last(torch.nn.Module):
            def forward(self, x):
                return x[0][:, -1]

        model = torch.nn.Sequential(torch.nn.LSTM(3, 3, batch_first=True), Last(), torch.nn.Linear(3, 1))
        model.load_state_dict(state, strict=True)


if __name__ == "__main__":
    program.main()
