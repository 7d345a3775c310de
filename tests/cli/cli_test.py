#!/usr/bin/env python3
"""The command line as a user meets it: help texts, messages, exit statuses, and a training run end to end.

usage: cli_test.py HOTLOOP [unittest arguments]     HOTLOOP_UPDATE_GOLDEN=1 rewrites the golden texts
"""
import csv
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import series

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
EXAMPLES = HERE.parent.parent / "examples"
COMMANDS = ["train", "eval", "devices", "explain", "export-config"]
HOTLOOP = ""


def hotloop(*arguments, cwd=None):
    environment = dict(os.environ, HOTLOOP_CACHE="0")
    return subprocess.run([HOTLOOP, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment,
                          timeout=300)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def golden(self, name, text):
        path = GOLDEN / name
        if os.environ.get("HOTLOOP_UPDATE_GOLDEN"):
            path.write_text(text)
        self.assertEqual(text, path.read_text())

    def refused(self, result, message):
        self.assertEqual((result.returncode, result.stderr), (2, f"hotloop: {message}\n"))

    def edited(self, old, new, **options):
        """The small job with one text replaced."""
        config = series.write(self.folder, **options)
        text = config.read_text()
        self.assertIn(old, text)
        config.write_text(text.replace(old, new, 1))
        return config


class Help(Case):
    def test_texts(self):
        for command in [None, *COMMANDS]:
            result = hotloop(*([command] if command else []), "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80, result.stdout)
            self.golden(f"help_{command or 'hotloop'}.txt", result.stdout)

    def test_version(self):
        self.assertRegex(hotloop("--version").stdout, r"^hotloop \d+\.\d+\.\d+\n$")

    def test_devices(self):
        result = hotloop("devices")
        self.assertEqual(result.returncode, 0)
        for label in ["model", "cores", "target", "caches", "backends", "CUDA", "OpenCL"]:
            self.assertRegex(result.stdout, rf"(?m)^  {label} +\S")


class Arguments(Case):
    def test_unknown_command(self):
        self.refused(hotloop("trian"), "[command] the command must be one that exists. Received: 'trian'. "
                                       "Try: did you mean 'train'?")

    def test_no_command(self):
        self.refused(hotloop(), "[arguments] A subcommand is required\nTry: hotloop --help")

    def test_bad_number(self):
        self.refused(hotloop("train", "--epochs", "x", "job.toml"),
                     "[arguments] Could not convert: --epochs = x\nTry: hotloop train --help")

    def test_missing_file(self):
        self.refused(hotloop("train", "nowhere.toml"),
                     "[config] the file must be readable. Received: nowhere.toml (No such file or directory). "
                     "Try: check the path; relative ones start at the working directory.")


class Configuration(Case):
    def message(self, config):
        result = hotloop("export-config", config.name, cwd=self.folder)
        self.assertEqual(result.returncode, 2, result.stdout)
        return result.stderr.removeprefix("hotloop: ").rstrip("\n")

    def test_export_shows_every_default_and_reads_back(self):
        result = hotloop("export-config", EXAMPLES / "demand.toml")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.golden("export_demand.toml", result.stdout)
        again = self.folder / "again.toml"
        again.write_text(result.stdout)
        self.assertEqual(hotloop("export-config", again).stdout, result.stdout)

    def test_unknown_key(self):
        self.assertEqual(self.message(self.edited("epochs = 3", "epoch = 3")),
                         "[job.toml:35] every key of [train] must be one it has. Received: 'epoch'. "
                         "Try: did you mean 'epochs'?")

    def test_unknown_table(self):
        self.assertEqual(self.message(self.edited("[optimizer]", "[optimiser]")),
                         "[job.toml:30] every table must be one that a configuration has. Received: [optimiser]. "
                         "Try: did you mean 'optimizer'?")

    def test_unknown_layer(self):
        self.assertEqual(self.message(self.edited("\"lstm\"", "\"lstn\"")),
                         "[job.toml:20 [[model]]] 'type' must be one of its choices: of layer. Received: \"lstn\". "
                         "Try: did you mean 'lstm'?")

    def test_unknown_setting_of_a_layer(self):
        self.assertIn("Received: 'hiden'. Try: did you mean 'hidden'?", self.message(self.edited("hidden = 3", "hiden = 3")))

    def test_wrong_type(self):
        self.assertEqual(self.message(self.edited("epochs = 3", "epochs = \"many\"")),
                         "[job.toml:35 [train]] 'epochs' must be an integer: passes over the training samples. "
                         "Received: 'many'.")

    def test_out_of_range(self):
        self.assertEqual(self.message(self.edited("epochs = 3", "epochs = 0")),
                         "[job.toml:35 [train]] 'epochs' must be at least 1: passes over the training samples. "
                         "Received: 0.")

    def test_missing_key(self):
        self.assertEqual(self.message(self.edited("target = \"load\"", "")),
                         "[job.toml:2 [data]] 'target' must be given: column to predict. Received: no value.")

    def test_no_toml(self):
        self.assertRegex(self.message(self.edited("[window]", "[window")), r"^\[config\] job.toml:1\d must be valid TOML\.")

    def test_unknown_column_of_the_table(self):
        config = self.edited("column = \"load\"", "column = \"laod\"")
        self.refused(hotloop("train", config.name, cwd=self.folder),
                     "[csv] series.csv must have the column 'laod'. Received: a header with 2 columns. "
                     "Try: did you mean 'load'?")


class Training(Case):
    def train(self, config, *arguments):
        return hotloop("train", config, "--out", self.folder / "run", *arguments, cwd=self.folder)

    def check_run(self, backend, layer, dtype):
        result = self.train(series.write(self.folder, backend, layer, dtype))
        self.assertEqual(result.returncode, 0, result.stderr)
        run = self.folder / "run"
        self.assertEqual(sorted(p.name for p in run.iterdir()),
                         ["config.toml", "history.csv", "metrics.json", "model.safetensors"])
        metrics = json.loads((run / "metrics.json").read_text())
        self.assertEqual(metrics["status"], "finished")
        self.assertIn(f"{metrics['test']:.4f}", result.stdout)
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

    def test_loss_that_is_not_finite(self):
        result = self.train(series.write(self.folder, learning_rate="1e38"))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stdout, r"The loss was not finite at step \d+ of epoch \d+\..*a smaller learning_rate")

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


if __name__ == "__main__":
    HOTLOOP = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
