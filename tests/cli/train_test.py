#!/usr/bin/env python3
"""hotloop train, import and explain, end to end.

usage: train_test.py HOTLOOP [unittest arguments]
"""
import csv
import json
import pathlib
import re
import struct
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import program
import series
from program import EXAMPLES, HERE, Case, hotloop


class Trajectories(Case):
    """examples/lorenz.toml with a smaller network, for fewer iterations."""

    SMALL = ["--epochs", "40", "--set", "model.1.layer.0.units=10"]

    def test_lorenz_is_fitted_and_drawn(self):
        run = self.folder / "run"
        result = hotloop("train", EXAMPLES / "lorenz.toml", "--out", run, *self.SMALL)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the same in all parts", " ".join(result.stdout.split()))
        self.assertIn("of 3 targets", result.stdout)
        # How often an adaptive solve steps is not known from the program: no speed is claimed.
        row = next(line for line in result.stdout.splitlines() if line.startswith("  train_step"))
        self.assertEqual(len(row.split()), 7)  # program, launches, us, workers, dots, loops, grids
        picture = xml.etree.ElementTree.parse(run / "phase.svg").getroot()
        space = "{http://www.w3.org/2000/svg}"
        lines = [path.get("d") for path in picture.iter(f"{space}path")]
        self.assertEqual([line.count("L") for line in lines], [99, 99])  # truth and fit at 100 times
        self.assertNotEqual(*lines)
        words = [text.text for text in picture.iter(f"{space}text")]
        for word in ["x", "z", "truth", "forecast"]:
            self.assertIn(word, words)
        self.assertIn("Phase space", (run / "report.html").read_text())
        history = list(csv.DictReader((run / "history.csv").read_text().splitlines()))
        self.assertEqual(len(history), 40)
        self.assertLess(float(history[-1]["train_loss"]), 0.95 * float(history[0]["train_loss"]))
        self.assertEqual(hotloop("eval", run).returncode, 0)

    def test_every_key_of_it_is_explained(self):
        result = hotloop("export-config", EXAMPLES / "lorenz.toml")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        for above, line in zip([""] + lines, lines):
            if "=" in line and not line.startswith("#"):
                self.assertTrue(re.search(r"# \S", line) or above.startswith("# "), line)
        again = self.folder / "again.toml"
        again.write_text(result.stdout.replace('"lorenz.csv"', f'"{EXAMPLES / "lorenz.csv"}"'))
        self.assertEqual(hotloop("export-config", again).returncode, 0)

    def test_a_field_must_keep_its_shape(self):
        result = hotloop("train", EXAMPLES / "lorenz.toml", "--out", self.folder / "run", "--set", "model.1.layer.2.units=4")
        self.refused(result, "[ode] the layers inside must keep the shape of their input. "
                             "Received: f32[1,3] becomes f32[1,4]. Try: a linear layer to bring it back.")


class Imports(Case):
    MODELS = HERE.parent / "data" / "rtneural"

    def test_a_model_of_rtneural_becomes_plain_c(self):
        result = hotloop("import", self.MODELS / "conv1d.json", "-o", self.folder / "amp", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout), {"out": str(self.folder / "amp"), "features": 2, "parameters": 97})
        result = hotloop("export", self.folder / "amp", "-o", self.folder / "c", "--name", "amp")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("The step takes 2 features.", result.stdout)
        self.assertEqual(sorted(f.name for f in (self.folder / "c").iterdir()), ["amp.c", "amp.h", "amp.o"])
        for path in [self.folder / "amp", self.folder / "amp" / "model.safetensors"]:
            result = hotloop("inspect", path, "--json")
            self.assertEqual([t["name"] for t in json.loads(result.stdout)["tensors"]],
                             ["0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias", "4.weight", "5.weight", "5.bias", "6.weight", "6.bias"])

    def test_folders_may_be_named_with_a_slash_behind(self):
        result = hotloop("import", self.MODELS / "lstm.json", "-o", "amp/", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.startswith("amp/model.toml and model.safetensors written"), result.stdout)
        self.assertIn("hotloop export amp -o amp_c\n", result.stdout)
        for options in [(), ("--overwrite",)]:
            result = hotloop("export", "amp/", "-o", "amp_c/", "--name", "amp", *options, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.startswith("amp_c/amp.h, amp.c and amp.o written"), result.stdout)
        self.assertEqual(sorted(f.name for f in self.folder.iterdir() if f.name.startswith("amp")), ["amp", "amp_c"])
        result = hotloop("export", "amp", "-o", "amp_c/", "--name", "amp", cwd=self.folder)
        self.refused(result, "[export] the folder to write must not exist. Received: amp_c. Try: another name, or --overwrite.")

    def test_brackets_alone(self):
        file = self.folder / "amp.json"
        file.write_text('{"layers": [], "in_shape": ' + "[" * 200000 + "]" * 200000 + "}")
        self.refused(hotloop("import", file, "-o", self.folder / "amp"),
                     f"[rtneural] {file} must be JSON. Received: more than 100 levels of nesting. Try: a file that RTNeural's model_utils.save_model wrote.")

    def test_what_cannot_be_imported(self):
        file = self.folder / "amp.json"
        file.write_text('{"in_shape": [null, 1], "layers": [{"type": "conv2d"}]}')
        self.refused(hotloop("import", file, "-o", self.folder / "amp"),
                     f"[rtneural] every layer must be one that can be read from {file}. Received: layer 1 (conv2d). "
                     "Try: dense, gru, lstm, conv1d, prelu, batchnorm and activation.")
        self.assertFalse((self.folder / "amp").exists())
        (self.folder / "amp").mkdir()
        (self.folder / "amp" / "mine").write_text("")
        result = hotloop("import", self.MODELS / "lstm.json", "-o", self.folder / "amp")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^hotloop: \[import\] ")


class Training(Case):
    def train(self, config, *arguments):
        return hotloop("train", config, "--out", self.folder / "run", "--overwrite", *arguments, cwd=self.folder)

    def check_run(self, backend, layer, dtype):
        result = self.train(series.write(self.folder, backend, layer, dtype))
        self.assertEqual(result.returncode, 0, result.stderr)
        run = self.folder / "run"
        names = sorted(p.name for p in run.iterdir())
        self.assertEqual([n for n in names if not n.startswith("events.out.tfevents.")],
                         ["baselines.json", "checkpoints", "config.toml", "forecast.svg", "history.csv", "loss.svg", "metrics.json",
                          "model.safetensors", "preparation.json", "report.html"])
        self.assertEqual(len(names), 11)
        for picture in ["forecast.svg", "loss.svg"]:
            self.assertEqual(xml.etree.ElementTree.parse(run / picture).getroot().tag, "{http://www.w3.org/2000/svg}svg")
        metrics = json.loads((run / "metrics.json").read_text())
        self.assertEqual(metrics["status"], "finished")
        self.assertIn(f"{metrics['test']:.4f}", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^  train_step\b.* [1-9]")  # launches counted in what ran
        self.assertNotIn("not run yet", result.stdout)
        self.assertEqual([b["name"] for b in metrics["baselines"]], ["three rows ago", "ridge regression on the window"])
        history = list(csv.DictReader((run / "history.csv").read_text().splitlines()))
        self.assertEqual([int(row["epoch"]) for row in history], [1, 2, 3])
        self.assertLess(float(history[2]["train_loss"]), float(history[0]["train_loss"]))
        best = min(history, key=lambda row: float(row["validation_mae"]))
        self.assertEqual(int(best["epoch"]), metrics["best_epoch"])
        evaluated = hotloop("eval", run)
        self.assertEqual(evaluated.returncode, 0, evaluated.stderr)
        self.assertIn("the same to the last bit", evaluated.stdout)
        return metrics

    def test_small_scores_have_digits_and_the_model_its_flags(self):
        config = series.write(self.folder, "llvm", "lstm", "f64")
        config.write_text(config.read_text().replace("hidden = 3\n", "hidden = 3\nbidirectional = true\n"))
        table = self.folder / "series.csv"
        rows = [line.split(",") for line in table.read_text().splitlines()[1:]]
        table.write_text("load,note\n" + "".join(f"{float(load) * 1e-6:.12f},{note}\n" for load, note in rows))
        result = self.train(config)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("lstm bidirectional hidden=3 layers=1 -> last", result.stdout)
        metrics = json.loads((self.folder / "run" / "metrics.json").read_text())
        for score in [metrics["test"], *(b["test"] for b in metrics["baselines"])]:
            self.assertLess(score, 1e-5)
            self.assertIn(f"  {score:.4g}\n", result.stdout)
        self.assertRegex(result.stderr + result.stdout, r"epoch 3/3 .* validation mae \d\.\d+e-0[67] ")

    def test_end_to_end_on_the_oracle(self):
        self.check_run("interp", "lstm", "f32")

    def test_end_to_end_compiled(self):
        for layer in ["lstm", "gru"]:
            for dtype in ["f32", "f64"]:
                with self.subTest(layer=layer, dtype=dtype):
                    compiled = self.check_run("llvm", layer, dtype)["test"]
                    oracle = self.check_run("interp", layer, dtype)["test"]
                    self.assertAlmostEqual(compiled, oracle, delta=(1e-4 if dtype == "f32" else 1e-10) * oracle)

    def test_same_seed_same_bits_for_any_number_of_threads(self):
        config = series.write(self.folder, "llvm")
        model = self.folder / "run" / "model.safetensors"
        bytes_of = {}
        for arguments in [("--threads", "1"), ("--threads", "2"), ("--seed", "7")]:
            self.assertEqual(self.train(config, *arguments).returncode, 0)
            bytes_of[arguments] = model.read_bytes()
        self.assertEqual(bytes_of["--threads", "1"], bytes_of["--threads", "2"])
        self.assertNotEqual(bytes_of["--threads", "1"], bytes_of["--seed", "7"])

    def test_checkpoint_has_pytorch_names_and_shapes(self):
        self.assertEqual(self.train(series.write(self.folder)).returncode, 0)
        data = (self.folder / "run" / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__")
        self.assertEqual({name: entry["shape"] for name, entry in header.items()},
                         {"0.weight_ih_l0": [12, 3], "0.weight_hh_l0": [12, 3], "0.bias_ih_l0": [12],
                          "0.bias_hh_l0": [12], "2.weight": [1, 3], "2.bias": [1]})

    def test_a_horizon_needs_as_many_outputs(self):
        config = series.write(self.folder)
        config.write_text(config.read_text().replace("length = 4", "length = 4\nhorizon_steps = 12"))
        self.refused(self.train(config), "[mse] prediction and target must have one shape and dtype. Received: f32[16,1] and f32[16,12]. "
                                         "Try: 12 outputs of the last layer (units = 12), one for each target and step of the horizon.")
        result = self.train(config, "--set", "model.2.units=12")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, "ridge .*[0-9]")

    def test_a_rate_that_falls_on_a_plateau(self):
        config = series.write(self.folder)
        schedule = "[[optimizer.schedule]]\ntype = \"plateau\"\npatience = 0\nthreshold = 1000\n\n[train]"
        config.write_text(config.read_text().replace("[train]", schedule))
        result = self.train(config)
        self.assertEqual(result.returncode, 0, result.stderr)
        folder = max((self.folder / "run" / "checkpoints").iterdir())
        data = (folder / "optimizer.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        begin, end = json.loads(data[8:8 + length])["schedule.0.factor"]["data_offsets"]
        # Only the first of three validations counts as better, by that threshold.
        self.assertAlmostEqual(struct.unpack("<d", data[8 + length + begin:8 + length + end])[0], 0.01)

    def test_loss_that_is_not_finite(self):
        result = self.train(series.write(self.folder, learning_rate="1e38"))
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertRegex(result.stderr, r"^hotloop: \[train\] The loss was not finite at step \d+ of epoch \d+\. First of all tensors, at step \d+ of "
                                        r"epoch \d+, was .*not finite\..*a smaller learning_rate")

    def test_several_metrics(self):
        config = series.write(self.folder, "interp")
        names = ["mae", "rmse", "r2", "loss"]
        result = self.train(config, "--set", f"train.metric={json.dumps(names)}")
        self.assertEqual(result.returncode, 0, result.stderr)
        run = self.folder / "run"
        lines = result.stdout.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("epoch 1/3"))
        self.assertRegex(lines[first], r"^epoch 1/3  loss [\d.]+  validation mae [\d.]+ \*  rmse [\d.]+")
        self.assertRegex(lines[first + 1], r"^           .* s  [\d,.]+ samples/s$")
        self.assertLessEqual(max(map(len, lines[first:first + 6])), 80)
        self.assertRegex(result.stdout, r"(?m)^  rmse [\d.]+, r2 [-\d.]+, loss [\d.]+ of this model$")
        history = list(csv.DictReader((run / "history.csv").read_text().splitlines()))
        self.assertEqual(list(history[0]), ["epoch", "train_loss", *(f"validation_{name}" for name in names), "seconds"])
        metrics = json.loads((run / "metrics.json").read_text())
        self.assertEqual((metrics["metric"], list(metrics["metrics"])), ("mae", names))
        best = history[metrics["best_epoch"] - 1]
        for name in names:
            self.assertAlmostEqual(metrics["metrics"][name]["validation"], float(best[f"validation_{name}"]), delta=1e-12)
        self.assertEqual(metrics["metrics"]["mae"], {"validation": metrics["validation"], "test": metrics["test"]})
        # Only the loss, which is of standardised numbers, and r2 have no unit.
        std = metrics["scales"]["target"]["std"]
        self.assertAlmostEqual(metrics["metrics"]["rmse"]["test"], std * metrics["metrics"]["loss"]["test"] ** 0.5, delta=1e-6)
        evaluated = json.loads(hotloop("eval", run, "--json").stdout)
        self.assertEqual(evaluated["metrics"], {name: {"test": metrics["metrics"][name]["test"]} for name in names})
        report = (run / "report.html").read_text()
        for name in names:
            self.assertIn(f"validation {name}", report)
            self.assertIn(f"{name}/validation".encode(), next(run.glob("events.out.tfevents.*")).read_bytes())
        # A run that goes on keeps what it has; the first one alone decides what it is.
        alone = self.folder / "alone"
        self.assertEqual(hotloop("train", config, "--out", alone).returncode, 0)
        self.assertEqual((alone / "model.safetensors").read_bytes(), (run / "model.safetensors").read_bytes())
        result = hotloop("train", "--resume", run, "--epochs", 4)
        self.assertEqual(result.returncode, 0, result.stderr)
        again = list(csv.DictReader((run / "history.csv").read_text().splitlines()))
        self.assertEqual((again[:3], len(again)), (history, 4))
        inspected = json.loads(hotloop("inspect", run, "--json").stdout)["checkpoint"]["history"]
        self.assertEqual([list(r["metrics"]) for r in inspected], [names] * 4)
        # One that began with a single metric has no others of its first epochs.
        self.assertEqual(hotloop("train", "--resume", alone, "--epochs", 4, "--set", f"train.metric={json.dumps(names)}").returncode, 0)
        longer = list(csv.DictReader((alone / "history.csv").read_text().splitlines()))
        self.assertEqual([row["validation_r2"] for row in longer], ["nan"] * 3 + [again[3]["validation_r2"]])

    def test_metrics_that_are_none(self):
        config = series.write(self.folder)
        doc = "(of validation and test; of several the first chooses; loss: the loss itself)"
        for given, message in (
            ("[]", "'metric' must name one at least. Received: []. Try: metric = [\"mae\", \"rmse\"]."),
            ('["mae", "mae"]', "'metric' must name each once. Received: \"mae\" twice."),
            ('["mae", "rsme"]', f"'metric' {doc} must be one of its choices. Received: \"rsme\". Try: did you mean 'rmse'?"),
            ("3", f"'metric' {doc} must be a text or a list of texts. Received: 3. Try: one of accuracy, auc, f1, mae, mse, r2, rmse, loss."),
        ):
            result = hotloop("train", config, "--out", self.folder / "run", "--set", f"train.metric={given}")
            self.refused(result, f"[--set train.metric={given} [train]] {message}")
        self.refused(hotloop("train", config, "--out", self.folder / "run", "--set", 'train.metric=["mae", "accuracy"]'),
                     "[accuracy] a target must be a class index, a whole number from 0 and below 2. Received: 0.35586509108543396. "
                     "Try: labels counted from 0, or a model with one output a class.")
        self.assertFalse((self.folder / "run").exists())

    def test_a_metric_that_does_not_fit_leaves_no_run(self):
        config = series.write_utterances(self.folder)
        run = self.folder / "run"
        result = hotloop("train", config, "--out", run, "--set", "train.metric=mae")
        self.refused(result, "[mae] there must be one prediction a target. Received: 3 predictions and 1 targets a sample. "
                             "Try: a metric of classes, accuracy say, if the targets are classes.")
        self.assertFalse(run.exists())
        # An epoch's steps are not thrown away.
        result = hotloop("train", config, "--out", run, "--set", "train.metric=mae", "--set", "checkpoint.every_steps=1")
        self.assertEqual(result.returncode, 2)
        result = hotloop("train", "--resume", run, "--set", "train.metric=accuracy")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("going on after step ", result.stdout)

    def test_a_column_predicts_classes_by_their_indices_alone(self):
        config = series.write_two_classes(self.folder, task="regression")
        table = self.folder / "points.csv"
        lines = table.read_text().splitlines()
        config.write_text(config.read_text().replace('task = "regression"', 'task = "classification"') + "\n[[baseline]]\ntype = \"column\"\ncolumn = \"guess\"\n")

        def write(first):
            rows = [row.split(",") for row in lines[1:]]
            table.write_text("a,b,kind,guess\n" + "".join(f"{a},{b},{int(kind) + first},{int(kind) + first}\n" for a, b, kind in rows))

        write(0)
        result = self.train(config)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads((self.folder / "run" / "metrics.json").read_text())["baselines"][0], {"name": "guess", "test": 1.0})
        write(1)
        self.refused(hotloop("train", config, "--out", self.folder / "none"),
                     "[baseline] a column can predict numbers, or two classes 0 and 1. Received: classes '1' and '2' of 'kind'. "
                     "Try: leave out the baseline 'guess', or a table with 0 and 1 in both columns.")
        self.assertFalse((self.folder / "none").exists())

    def test_a_baseline_that_fails_leaves_the_models_results(self):
        config = series.write_two_classes(self.folder)
        run = self.folder / "run"
        self.assertEqual(self.train(config).returncode, 0)
        stored = json.loads((run / "metrics.json").read_text())["test"]
        # As of a run that began when baselines were not asked before the first step.
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text + "\n[[baseline]]\ntype = \"column\"\ncolumn = \"a\"\n")
        result = hotloop("eval", run)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"A baseline is left out: \[.+\] ")
        out = json.loads(hotloop("eval", run, "--json").stdout)
        self.assertEqual((out["test"], out["baselines"][0]["name"]), (stored, "the commonest class"))
        self.assertIn("must", out["left_out"])

    def test_one_output_tells_two_classes(self):
        found = {}
        for task in ("classification", "regression"):
            for logits in (True, False):
                folder = self.folder / f"{task}_{logits}"
                folder.mkdir()
                config = series.write_two_classes(folder, logits, task)
                result = hotloop("train", config, "--out", folder / "run")
                self.assertEqual(result.returncode, 0, result.stderr)
                metrics = json.loads((folder / "run" / "metrics.json").read_text())
                # By 0 each probability would be of class 1, and half of the answers right.
                self.assertGreater(metrics["test"], 0.9)
                found[task, logits] = metrics["test"]
                lines = csv.DictReader(hotloop("predict", folder / "run", folder / "points.csv",
                                               *(["--probabilities"] if task == "classification" else [])).stdout.splitlines())
                rows = list(csv.DictReader((folder / "points.csv").read_text().splitlines()))
                right = [row["kind"] == rows[int(row["row"])]["kind"] and (row["kind"] == "yes") == (float(row["probability_yes"]) > 0.5)
                         if task == "classification" else
                         (float(row["kind"]) > (0 if logits else 0.5)) == (rows[int(row["row"])]["kind"] == "1") for row in lines]
                self.assertGreater(sum(right), 0.9 * len(rows))
        for logits in (True, False):
            self.assertEqual(found["classification", logits], found["regression", logits])

    def test_targets_outside_of_a_losss_domain(self):
        config = series.write_two_classes(self.folder, task="regression")
        text = config.read_text()
        config.write_text(text.replace("standardize_targets = false\n", ""))
        self.refused(self.train(config), f"[{config}:18 [loss]] 'type' must go with targets as they are: its targets are from 0 to 1. "
                                         "Received: \"binary_cross_entropy\" and standardised targets. Try: standardize_targets = false in [window].")
        config.write_text(text)
        table = self.folder / "points.csv"
        table.write_text(table.read_text().replace(",1\n", ",3\n"))
        result = self.train(config)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\[fit\] a target of binary_cross_entropy must be from 0 to 1\. Received: 3 of training sample \d+\.")
        self.assertFalse((self.folder / "run").exists())

    def test_a_column_predicts_no_three_classes(self):
        config = series.write_utterances(self.folder)
        table = self.folder / "utterances.csv"
        table.write_text(re.sub(",([xyz]),", lambda match: f",{'xyz'.index(match[1])},", table.read_text()))
        config.write_text(config.read_text() + "\n[[baseline]]\ntype = \"column\"\ncolumn = \"a\"\n")
        self.refused(self.train(config), "[baseline] a column can predict numbers, or two classes 0 and 1. Received: 3 classes of 'voice'. "
                                         "Try: leave out the baseline 'a'.")
        self.assertFalse((self.folder / "run").exists())

    def test_the_answer_among_the_inputs(self):
        def message(received, remedy):
            return f"[data] an input must not be the target's own row. Received: {received}. Try: {remedy}."
        config = self.edited('inputs = ["load_lag", "day"]', 'inputs = ["load_lag", "load"]')
        self.refused(self.train(config), message("'load' in inputs, with horizon = 0", "a lag of it, or horizon = 1"))
        self.assertFalse((self.folder / "run").exists())
        self.assertEqual(self.train(config, "--set", "window.horizon=1").returncode, 0)  # the target's past
        one_hot = ["--set", "data.task=classification", "--set", "data.one_hot=[{column=\"load\"}]", "--set", "baseline=[]"]
        self.refused(self.train(config, *one_hot), message("'load' in inputs, with horizon = 0", "inputs without it, or horizon = 1"))
        series.write_utterances(self.folder)
        config.write_text(config.read_text().replace('"a", "b"]', '"a", "voice"]') + "\n[[data.one_hot]]\ncolumn = \"voice\"\n")
        self.refused(self.train(config), message("'voice' in inputs, with one target a series", "inputs without it"))

    def test_an_autoencoder_has_its_targets_as_inputs(self):
        (self.folder / "t.csv").write_text("a,b\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(60)))
        config = self.folder / "job.toml"
        config.write_text('[data]\nfile = "t.csv"\ninputs = ["a", "b"]\ntarget = ["b", "a"]\n[window]\nlength = 1\n[[model]]\ntype = "last"\n'
                          '[[model]]\ntype = "linear"\nunits = 1\n[[model]]\ntype = "linear"\nunits = 2\n[train]\nbackend = "interp"\nepochs = 1\n')
        result = self.train(config)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_eval_refuses_parameters_of_another_model(self):
        self.assertEqual(self.train(series.write(self.folder)).returncode, 0)
        config = self.folder / "run" / "config.toml"
        config.write_text(config.read_text().replace("hidden = 3", "hidden = 4"))
        result = hotloop("eval", self.folder / "run")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"tensor '0.weight_ih_l0' of .* must be f32\[16,3\]\. Received: f32\[12,3\]")

    def test_explain_needs_no_table(self):
        config = series.write(self.folder)
        (self.folder / "series.csv").unlink()
        result = hotloop("explain", config)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("0.weight_ih_l0", result.stdout)
        self.assertIn("Training step", result.stdout)
        self.assertIn("denormals   count as 0 in arithmetic", result.stdout)
        keeping = hotloop("explain", config, "--set", "train.flush_denormals=false")
        self.assertNotIn("denormals", keeping.stdout)

    def test_explain_measures_on_the_first_batch(self):
        config = series.write(self.folder)
        interpreted = hotloop("explain", config, "--profile")
        self.assertEqual(interpreted.returncode, 2)
        self.assertIn("Received: backend interp. Try: backend llvm", interpreted.stderr)
        command = ["explain", config, "--profile", "--backend", "llvm"]
        result = hotloop(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("a call by one worker"), 2)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)
        for part in ["training_step", "prediction"]:
            profile = json.loads(hotloop(*command, "--json").stdout)[part]["profile"]
            self.assertAlmostEqual(sum(s["time_us"] for s in profile["statements"]), profile["call_us"], places=3)
            self.assertTrue(all(s["flops"] + s["elements"] > 0 for s in profile["statements"] if s["runs"] > 0))


if __name__ == "__main__":
    program.main()
