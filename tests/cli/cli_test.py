#!/usr/bin/env python3
"""The command line as a user meets it: help texts, messages, exit statuses, and a training run end to end.

usage: cli_test.py HOTLOOP [unittest arguments]     HOTLOOP_UPDATE_GOLDEN=1 rewrites the golden texts
"""
import csv
import datetime
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import series

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
EXAMPLES = HERE.parent.parent / "examples"
COMMANDS = ["train", "eval", "predict", "import", "export", "inspect", "explain", "export-config", "new", "devices", "completion"]
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

    def test_documentation_names_every_command_and_option(self):
        text = (HERE.parent.parent / "docs" / "cli.md").read_text()
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^\| `{command}[ `]")
            for option in re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", hotloop(command, "--help").stdout):
                if option not in ("--help", "--out"):  # -o in predict
                    self.assertIn(f"`{option}", text.replace(" " + option, " `" + option), command)

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
        self.refused(hotloop(), "[arguments] A subcommand is required. Received: hotloop. Try: hotloop --help.")

    def test_bad_number(self):
        config = series.write(self.folder)
        for option, key, value, received in [
            ("--epochs", "epochs", "x", "'x'"), ("--epochs", "epochs", "9" * 20, f"'{'9' * 20}'"),
            ("--batch-size", "batch_size", "1.5", "1.5"), ("--threads", "threads", "-1", "-1"),
        ]:
            with self.subTest(option=option, value=value):
                result = hotloop("train", option, value, config)
                rule = "at least 0" if value == "-1" else "an integer"
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, rf"^hotloop: \[{option} {value} \[train\]\] '{key}' \(.*\) must be {rule}\."
                                                rf" Received: {received}\.( Try: {key} = \d+, the default\.)?$")

    def test_missing_and_unknown_options(self):
        for arguments, message in {
            ("export",): "RUN is required. Received: hotloop export. Try: RUN, folder of a run or of an imported model.",
            ("export", "x"): "--out is required. Received: hotloop export x. Try: --out, folder to write, which must not exist.",
            ("train", "job.toml", "--epoch=3"): "The following argument was not expected: --epoch=3. "
                                                "Received: hotloop train job.toml --epoch=3. Try: did you mean '--epochs'?",
            ("train", "job.toml", "--verbosity"): "The following argument was not expected: --verbosity. "
                                                  "Received: hotloop train job.toml --verbosity. Try: hotloop train --help.",
        }.items():
            with self.subTest(arguments):
                self.refused(hotloop(*arguments), f"[arguments] {message}")

    def test_inspect_of_other_files(self):
        where = "[inspect] RUN|FILE must be the folder of a run or a .safetensors file. Received: "
        self.refused(hotloop("inspect", "t.csv"), f"{where}t.csv. Try: hotloop new t.csv --target COLUMN, which looks at its columns.")
        self.refused(hotloop("inspect", "job.toml"), f"{where}job.toml. Try: hotloop export-config job.toml, which shows every setting.")
        notes = self.folder / "notes.txt"
        notes.write_text("no tensors here\nnor there\n")
        self.refused(hotloop("inspect", notes), f"[safetensors] {notes} must have a header inside the file, of at most 100 MB. "
                     "Received: text that begins with 'no tensors here'. Try: write the checkpoint again; this file is damaged or of another format.")

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

    NESTED = """[[model]]
type = "residual"
[[model.layer]]
type = "bidirectional"
merge = "average"
[[model.layer.layer]]
type = "gru"
hidden = 3

[[model]]
type = "last"
"""

    def test_layers_inside_layers_schedules_and_wrappers_read_back(self):
        config = self.edited("[[model]]\ntype = \"last\"\n", self.NESTED)
        config.write_text(config.read_text().replace("[train]", """[[optimizer.schedule]]
type = "warmup"
steps = 4

[[optimizer.schedule]]
type = "cosine"
steps = 15

[[optimizer.wrapper]]
type = "clip_by_norm"

[train]"""))
        first = hotloop("export-config", config)
        self.assertEqual(first.returncode, 0, first.stderr)
        again = self.folder / "again.toml"
        again.write_text(first.stdout)
        self.assertEqual(hotloop("export-config", again).stdout, first.stdout)
        tables = [line for line in first.stdout.splitlines() if line.startswith("[[model") or line.startswith("[[opt")]
        self.assertEqual(tables, ["[[model]]", "[[model]]", "[[model.layer]]", "[[model.layer.layer]]", "[[model]]", "[[model]]",
                                  "[[optimizer.schedule]]", "[[optimizer.schedule]]", "[[optimizer.wrapper]]"])
        trained = hotloop("train", again, "--out", self.folder / "run", cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_layers_inside_a_layer_that_has_none(self):
        self.assertEqual(self.message(self.edited("type = \"last\"", "type = \"last\"\n[[model.layer]]\ntype = \"relu\"")),
                         "[job.toml:25 [[model]]] 'layer' must not be there: 'last' has no layers inside. "
                         "Received: [[model.layer]]. Try: a [[model]] of its own.")

    def test_unknown_key(self):
        self.assertEqual(self.message(self.edited("epochs = 3", "epoch = 3")),
                         "[job.toml:35] every key of [train] must be one it has. Received: 'epoch'. "
                         "Try: did you mean 'epochs'?")

    def test_unknown_table(self):
        self.assertEqual(self.message(self.edited("[optimizer]", "[optimiser]")),
                         "[job.toml:30] every table must be one that a configuration has. Received: [optimiser]. "
                         "Try: did you mean 'optimizer'?")

    def test_an_optimiser_of_all_data_at_once(self):
        result = hotloop("export-config", series.write(self.folder), "--set", "optimizer.type=lbfgs")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("must be an optimiser, which steps from batch to batch. Received: \"lbfgs\", which minimises over all data at once. "
                      "Try: adam, or for a function of all data hl.minimize", result.stderr)
        result = hotloop("export-config", series.write(self.folder), "--set", "optimizer.type=adan")
        self.assertIn("'type' (of optimiser) must be one of its choices. Received: \"adan\". Try: did you mean 'adam'?", result.stderr)

    def test_unknown_layer(self):
        self.assertEqual(self.message(self.edited("\"lstm\"", "\"lstn\"")),
                         "[job.toml:20 [[model]]] 'type' (of layer) must be one of its choices. Received: \"lstn\". "
                         "Try: did you mean 'lstm'?")

    def test_swapped_letters_and_longer_names(self):
        self.assertIn("did you mean 'lstm'?", self.message(self.edited("\"lstm\"", "\"ltsm\"")))
        self.assertIn("did you mean 'rmse'?", self.message(self.edited("[train]", "[train]\nmetric = \"rsme\"")))
        self.assertIn("Received: [training]. Try: did you mean 'train'?", self.message(self.edited("[train]", "[training]")))

    def test_remedies_are_values(self):
        self.assertIn("'learning_rate' (step size) must be a number. Received: \"0,01\". Try: learning_rate = 0.01.",
                      self.message(self.edited("learning_rate = 0.02", "learning_rate = \"0,01\"")))
        self.assertIn("'hidden' (number of hidden units) must be an integer. Received: 1.5. "
                      "Try: hidden = 8, or any other whole number without quotes.", self.message(self.edited("hidden = 3", "hidden = 1.5")))
        self.assertRegex(self.message(self.edited("type = \"lstm\"\n", "")), r"'type' \(of layer\) must be given\. Received: no value\. Try: one of .*, lstm, ")
        self.assertIn("'seed' (of parameters and sample order) must be an integer. Received: '7'. Try: seed = 7.",
                      self.message(self.edited("seed = 1", "seed = \"7\"")))

    def test_unknown_setting_of_a_layer(self):
        self.assertIn("Received: 'hiden'. Try: did you mean 'hidden'?", self.message(self.edited("hidden = 3", "hiden = 3")))

    def test_wrong_type(self):
        self.assertEqual(self.message(self.edited("epochs = 3", "epochs = \"many\"")),
                         "[job.toml:35 [train]] 'epochs' (passes over the training samples) must be an integer. "
                         "Received: 'many'. Try: epochs = 10, the default.")

    def test_out_of_range(self):
        self.assertEqual(self.message(self.edited("epochs = 3", "epochs = 0")),
                         "[job.toml:35 [train]] 'epochs' (passes over the training samples) must be at least 1. "
                         "Received: 0.")

    def test_missing_key(self):
        self.assertEqual(self.message(self.edited("target = \"load\"", "")),
                         "[job.toml:2 [data]] 'target' (column to predict, or columns) must be given. Received: no value. "
                         "Try: target = \"<text>\".")
        self.assertIn("Received: 3. Try: target = \"<text>\".", self.message(self.edited("target = \"load\"", "target = 3")))
        self.assertIn("Try: inputs = [\"<text>\", \"<text>\"].", self.message(self.edited("inputs = [\"load_lag\", \"day\"]", "")))

    def test_set_replaces_any_value(self):
        config = series.write(self.folder)
        result = hotloop("export-config", config, "--set", "optimizer.learning_rate=5e-4", "--set", "model.0.type=gru",
                         "--set", 'data.inputs=["day"]', "--epochs", "9", "--precision", "f64")
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in [r"learning_rate = 5e-04 ", r'type = "gru" ', r'inputs = \["day"\] ', r"epochs = 9 ", r'precision = "f64" ']:
            self.assertRegex(result.stdout, rf"(?m)^{line}")

    def test_set_is_refused_by_its_own_name(self):
        config = series.write(self.folder)
        for assignment, message in {
            "optimzer.learning_rate=1": "[--set optimzer.learning_rate=1] every table must be one that a configuration has. "
                                        "Received: [optimzer]. Try: did you mean 'optimizer'?",
            "train.epochs=many": "[--set train.epochs=many [train]] 'epochs' (passes over the training samples) must be an "
                                 "integer. Received: 'many'. Try: epochs = 10, the default.",
            "optimizer.lerning_rate=1": "[--set optimizer.lerning_rate=1 [optimizer]] every key of [optimizer] must be one it has. "
                                        "Received: 'lerning_rate'. Try: did you mean 'learning_rate'?",
            "model.0.hiden=1": "[--set model.0.hiden=1 [[model]]] every key of [[model]] must be one it has. Received: 'hiden'. "
                               "Try: did you mean 'hidden'?",
            "optimizer.learning_rate=fast": "[--set optimizer.learning_rate=fast [optimizer]] 'learning_rate' (step size) must be a number. "
                                            "Received: \"fast\". Try: learning_rate = 0.001, the default.",
            "optimizer.learning_rate=-1": "[--set optimizer.learning_rate=-1 [optimizer]] the learning rate must not be negative. "
                                          "Received: -1. Try: 1e-3 to begin with.",
            "optimizer.schedule=[{type='plateau', factor=2.0}]":
                "[--set optimizer.schedule=[{type='plateau', factor=2.0}] [[optimizer.schedule]]] factor must be between 0 and 1. Received: 2.",
            "model.7.hidden=1": "[--set model.7.hidden=1] a list's item must be named by its place, counted from 0. "
                                "Received: '7' of 3 items. Try: 0 to 2.",
            "loss": "[arguments] --set takes TABLE.KEY=VALUE. Received: 'loss'. Try: --set optimizer.learning_rate=1e-4.",
        }.items():
            with self.subTest(assignment):
                self.refused(hotloop("export-config", config, "--set", assignment), message)

    def test_a_layer_that_refuses_its_setting_is_found(self):
        config = series.write(self.folder)
        self.refused(hotloop("explain", config, "--set", "model.0.hidden=-3"), "[--set model.0.hidden=-3 [[model]]] hidden must be positive. "
                                                                               "Received: -3.")

    def test_a_component_that_refuses_its_setting_is_found_in_the_file(self):
        config = series.write(self.folder, learning_rate="-1.0")
        line = config.read_text().splitlines().index("learning_rate = -1.0") + 1
        self.refused(hotloop("export-config", config), f"[{config}:{line} [optimizer]] the learning rate must not be negative. Received: -1. "
                                                       "Try: 1e-3 to begin with.")

    def test_of_two_components_of_a_type_none_is_blamed(self):
        config = series.write(self.folder)
        text, schedule = config.read_text(), '[[optimizer.schedule]]\ntype = "{}"\nsteps = {}\n\n[train]'
        for first, where in {"cosine": "[cosine]", "warmup": f"[{config}:{text.splitlines().index('[train]') + 7} [[optimizer.schedule]]]"}.items():
            config.write_text(text.replace("[train]", schedule.format(first, 5)).replace("[train]", schedule.format("cosine", -5)))
            self.refused(hotloop("export-config", config), f"{where} steps must be positive. Received: -5.")

    def test_a_model_that_no_memory_holds(self):
        # 256 TB of weights, more than there are addresses.
        self.refused(hotloop("train", series.write(self.folder), "--set", "model.0.hidden=4000000"), "[memory] the model and its data must fit the memory. "
                     "Received: f32[16000000,4000000], 256 TB. Try: fewer units, or a smaller batch_size.")

    def test_a_classification_has_no_ridge_regression(self):
        config = series.write_utterances(self.folder)
        text = config.read_text() + "\n[[baseline]]\ntype = \"ridge\"\n"
        config.write_text(text)
        self.refused(hotloop("train", config.name, "--out", "run", cwd=self.folder),
                     f"[job.toml:{text.count(chr(10))} [[baseline]]] a ridge regression predicts numbers, not classes. "
                     "Received: task = \"classification\". Try: leave out this [[baseline]].")
        self.assertFalse((self.folder / "run").exists())

    def test_no_toml(self):
        self.assertRegex(self.message(self.edited("[window]", "[window")), r"^\[config\] job.toml:1\d must be valid TOML\.")

    def test_unknown_column_of_the_table(self):
        config = self.edited("column = \"load\"", "column = \"laod\"")
        self.refused(hotloop("train", config.name, cwd=self.folder),
                     "[csv] series.csv must have the column 'laod', which the lag 'load_lag' reads. Received: a header with 2 columns. "
                     "Try: did you mean 'load'?")


class BadTables(Case):
    """Each ends with status 2, names the place, and leaves no run behind."""

    def check(self, table, message, old="", new=""):
        config = self.edited(old, new) if old else series.write(self.folder)
        path = self.folder / "series.csv"
        if isinstance(table, bytes):
            path.write_bytes(table)
        else:
            path.write_text(table(path.read_text()))
        result = hotloop("train", config.name, "--out", "run", cwd=self.folder)
        self.refused(result, message)
        self.assertFalse((self.folder / "run").exists())

    def test_a_table_in_place_of_a_configuration(self):
        (self.folder / "shop.csv").write_text("a\n1\n")
        self.refused(hotloop("train", "shop.csv", cwd=self.folder),
                     "[config] CONFIG must be a TOML file, which names its table: [data] file. Received: shop.csv. "
                     "Try: hotloop new shop.csv --target COLUMN, which prints one for this table.")

    def test_text_in_a_number(self):
        self.check(lambda text: text.replace("\n", "\nten,row x\n", 1),
                   "[csv] every cell of column 'load' must be a finite number. Received: 'ten' at series.csv:2. "
                   "Try: add 'ten' to missing_values if it stands for a missing value, with missing = \"drop\", \"forward\" or "
                   "\"mean\", or mend the cell or remove the row, or task = \"classification\" for classes.")

    def test_text_in_an_input(self):
        self.check(lambda text: text.replace("note", "price", 1).replace("row 0", "free").replace("row ", ""),
                   "[csv] every cell of column 'price' must be a finite number. Received: 'free' at series.csv:2. "
                   "Try: add 'free' to missing_values if it stands for a missing value, with missing = \"drop\", \"forward\" or "
                   "\"mean\", or mend the cell or remove the row, or leave the column out, or one_hot for a column of words.",
                   'inputs = ["load_lag", "day"]', 'inputs = ["load_lag", "day", "price"]')

    def test_a_number_for_people(self):
        self.check(lambda text: text.replace("\n", "\n$5.50,row x\n", 1),
                   "[csv] every cell of column 'load' must be a finite number. Received: '$5.50' at series.csv:2. "
                   "Try: write it like 1005.50: a decimal point, and no separators or units.")

    def test_empty_cell(self):
        self.check(lambda text: text.replace("\n", "\n,row x\n", 1),
                   "[csv] every cell of column 'load' must be a finite number. Received: an empty cell at series.csv:2. "
                   "Try: mend the cell or remove the row, or missing = \"drop\", \"forward\" or \"mean\".")

    def test_ragged_row(self):
        self.check(lambda text: text + "1\n", "[csv] every row must have as many cells as the header, 2. Received: 1 at "
                                              "series.csv:92.")

    def test_other_separator(self):
        self.check(lambda text: text.replace(",", ";"),
                   "[csv] series.csv must have the column 'load'. Received: a header with 1 column. "
                   "Try: the file seems to use ';': separator = \";\".")

    def test_empty_file(self):
        self.check(b"", "[csv] a table needs a header line and at least one row. Received: an empty file, series.csv.")

    def test_utf16(self):
        self.check("load\n1\n".encode("utf-16"), "[csv] series.csv must be text in UTF-8. Received: UTF-16 text. "
                                                 "Try: iconv -f UTF-16 -t UTF-8.")

    def test_fewer_rows_than_a_window(self):
        self.check(b"load\n1\n2\n", "[window] the table must be at least as long as a window and its horizon. "
                                     "Received: 2 rows for length 4 and horizon 0. Try: a shorter length or horizon, or more rows.")

    def test_constant_column(self):
        self.check(b"load\n" + b"5\n" * 90,
                   "[data] column 'load_lag' must vary over the training rows. Received: 5 on every one of them. "
                   "Try: leave it out of the inputs, or standardize = false.")

    def test_unknown_group(self):
        config = self.edited("target = \"load\"", "target = \"load\"\ngroup = \"note\"")
        config.write_text(config.read_text() + "\n[split]\nby = \"group\"\ntest_groups = [\"rwo 7\"]\n")
        self.refused(hotloop("train", config.name, cwd=self.folder),
                     "[split] every group must be one that the table has. Received: 'rwo 7'. "
                     "Try: did you mean 'row 7'?")

    def test_npy_of_another_kind(self):
        config = self.edited("series.csv", "series.npy")
        header = b"{'descr': '>f8', 'fortran_order': False, 'shape': (3,), }\n"
        (self.folder / "series.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(24))
        self.refused(hotloop("train", config.name, cwd=self.folder),
                     "[npy] series.npy: the array must be little-endian. Received: dtype '>f8'. "
                     "Try: array.astype(array.dtype.newbyteorder('<')).")

    def test_toml_that_its_parser_does_not_survive(self):
        config = series.write(self.folder)
        for text in ["[!]\n", "a = 1 \u00e9\n[b \u00e9]\n"]:
            config.write_text(text)
            result = hotloop("train", config.name, cwd=self.folder)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("must be valid TOML", result.stderr)


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
        self.assertEqual(len(row.split()), len("program launches us workers dots loops grids".split()))
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
        result = hotloop("inspect", self.folder / "amp" / "model.safetensors", "--json")
        self.assertEqual([t["name"] for t in json.loads(result.stdout)["tensors"]],
                         ["0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias", "4.weight", "5.weight", "5.bias", "6.weight", "6.bias"])

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


class New(unittest.TestCase):
    """hotloop new: a configuration that trains as it is."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def write(self, rows, header):
        (self.folder / "t.csv").write_text("\n".join([header, *rows]) + "\n")

    TIMES_TABLE = """  column     role      kind        note
  when       time      times
  price      input     numbers     6 missing
  the "sky"  input     categories  2 different
  sales      target    numbers     7 different values: --task classification
                                   takes them for classes
  shop       left out  texts       one value

t.toml written. Next: hotloop train t.toml
"""

    def new(self, *arguments):
        """The configuration, and what is said about each column as one line a column."""
        result = hotloop("new", "t.csv", *arguments, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLessEqual(max(map(len, result.stderr.splitlines())), 80, result.stderr)
        return result.stdout, re.sub(r"\n {20,}", " ", result.stderr)

    def hours(self, count=300):
        return [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=i) for i in range(count)]

    def write_hours(self, times, sales=lambda i: str(10 + i % 7 + i % 24)):
        self.write([f"{time},{i % 5 + i % 11},{sales(i)}" for i, time in enumerate(times)], "when,price,sales")

    def test_odd_cells_of_a_numeric_target(self):
        for odd in ["closed", "-", "inf", "n/a", "#N/A"]:
            self.write_hours(self.hours(), lambda i: odd if i == 125 else str(10 + i % 7 + i % 24))
            config, table = self.new("--target", "sales")
            with self.subTest(odd=odd):
                self.assertNotIn("classification", config)
                known = odd in ("n/a", "#N/A")
                self.assertEqual(f'"{odd}"]' in config, not known)
                note = "1 missing" if known else f"299 of 300 cells are numbers; the first other: '{odd}' in line 127; such cells count as missing"
                self.assertRegex(table, rf"(?m)^  sales   target    numbers     {re.escape(note)}$")
                (self.folder / "run.toml").write_text(config)
        trained = hotloop("train", "run.toml", "--epochs", "2", cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("'sales': 1 missing, their samples left out 'sales' in the inputs: filled with the last value before",
                      " ".join(trained.stdout.split()))

    def test_a_text_among_numbers_that_another_column_needs(self):
        def table(*odd):
            self.write([f"{time},{'closed' if 'price' in odd and i == 30 else i % 5 + i % 11},{'closed' if 'sales' in odd and i == 125 else 10 + i % 7 + i % 24},"
                        f"{'closed' if i % 9 == 0 else 'open'}" for i, time in enumerate(self.hours())], "when,price,sales,status")
        table("price")
        config, described = self.new("--target", "sales")
        self.assertRegex(described, r"(?m)^  price   left out  numbers     'closed' in line 32 is no number, and a value of 'status': leave such cells empty$")
        self.assertIn("# Left out: price ('closed' in line 32 ", config)
        self.assertNotIn("missing_values", config)
        self.assertNotIn("missing_values", self.new("--target", "status")[0])  # classes
        table("sales")
        result = hotloop("new", "t.csv", "--target", "sales", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (
            2, "hotloop: [new] a text among the numbers of the target must be no value of another column. Received: 'closed' in line 127 of "
               "'sales', which 'status' has too. Try: leave such cells of 'sales' empty, or take 'status' out of the table.\n"))

    def test_targets_that_are_no_numbers(self):
        for odd in ["$5.50", '"1,005.50"', '"5,5"']:
            self.write_hours(self.hours(), lambda i: odd if i == 125 else str(10 + i % 7))
            result = hotloop("new", "t.csv", "--target", "sales", cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr),
                             (2, "hotloop: [new] every cell of the target must be a plain number, like 1005.50. "
                                 f"Received: '{odd.strip(chr(34))}' in line 127 of 'sales'. "
                                 "Try: no currency, separators of thousands or percent signs, and a decimal point.\n"))
        self.write_hours(self.hours(), lambda i: f"customer {i // 3}")
        result = hotloop("new", "t.csv", "--target", "sales", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr),
                         (2, "hotloop: [new] the target must be numbers, or classes of 10 rows or more on average. "
                             "Received: 100 different texts in 300 rows of 'sales', the first 'customer 0'. "
                             "Try: another column as the target, or --task classification to take each text for a class.\n"))
        self.assertIn("units = 100", self.new("--target", "sales", "--task", "classification")[0])
        self.write_hours(self.hours(), lambda i: str(i % 3))
        config, table = self.new("--target", "sales")
        self.assertIn("3 different values: --task classification takes them for classes", table)
        self.assertNotIn("classification", config)
        self.assertIn("units = 3", self.new("--target", "sales", "--task", "classification")[0])
        result = hotloop("new", "t.csv", "--target", "sales", "--task", "ranking", cwd=self.folder)
        self.assertEqual(result.returncode, 2)

    def test_ways_to_write_times(self):
        for pattern, setting in {"%d/%m/%Y %H:%M": 'date_format = "dd/mm/yyyy"', "%m/%d/%Y %H:%M": 'date_format = "mm/dd/yyyy"',
                                 "%d.%m.%Y %H:%M:%S": 'date_format = "dd/mm/yyyy"', "%Y-%m-%d %H:%M:%S UTC": "", "%Y/%m/%dT%H:%MZ": ""}.items():
            self.write_hours([time.strftime(pattern) for time in self.hours(350)])
            config, table = self.new("--target", "sales")
            with self.subTest(pattern=pattern):
                self.assertIn('time = "when"', config)
                self.assertIn(setting or 'type = "lstm"', config)
                self.assertEqual("date_format" in config, bool(setting))
                self.assertIn("when    time      times", table)
            (self.folder / "run.toml").write_text(config)
            trained = hotloop("train", "run.toml", "--epochs", "1", "--overwrite", cwd=self.folder)
            self.assertEqual(trained.returncode, 0, trained.stderr)
            self.assertIn("in steps of 1 h, 0 gaps", trained.stdout)

    def test_times_that_do_not_order_the_rows(self):
        hours = [time.isoformat() for time in self.hours()]
        dates = [time.strftime("%d/%m/%Y %H:%M") for time in self.hours(200)]
        for times, note in [
            (hours[:8] + hours[7:], "line 10 has the time of line 9: keep one row of each time"),
            (hours[:8] + hours[6:7] + hours[8:], "line 10 is earlier than line 9: sort the rows by time"),
            (hours[:8] + ["soon"] + hours[8:], "'soon' in line 10 is no time like the others: mend it or remove the row"),
            (hours[:8] + [""] + hours[8:], "no time in line 10: put it in or remove the row"),
            (dates, "day and month of '01/01/2024 00:00' could be swapped: --date-format dd/mm/yyyy or mm/dd/yyyy says which"),
        ]:
            self.write_hours(times)
            config, table = self.new("--target", "sales")
            with self.subTest(note):
                self.assertRegex(table, rf"(?m)^  when    left out  times       {re.escape(note)}")
                self.assertIn("No column of times is in use", table)
                self.assertIn(f"# Left out: when ({note}", config)
        config, table = self.new("--target", "sales", "--date-format", "dd/mm/yyyy")
        self.assertIn('date_format = "dd/mm/yyyy"', config)
        self.assertNotIn("No column of times", table)

    def test_series_of_one_table(self):
        hours = [time.isoformat() for time in self.hours(100)]
        rows = {shop: [f"{time},{shop},{i % 5},{10 * shop + i % 7 + i % 24}" for i, time in enumerate(hours)] for shop in (1, 2, 3)}
        one_after_another = rows[1] + rows[2] + rows[3]
        side_by_side = [row for together in zip(*rows.values()) for row in together]
        for case, lines in enumerate([one_after_another, side_by_side]):
            self.write(lines, "when,shop,price,sales")
            config, table = self.new("--target", "sales")
            self.assertIn("it rises for each value of 'shop', so --group 'shop' says that these are series of their own", table)
            config, table = self.new("--target", "sales", "--group", "shop")
            self.assertRegex(table, r"(?m)^  shop    group     texts       3 different$")
            for part in ['group = "shop"', 'inputs = ["shop", "price", "sales_before", "hour", "weekday"]', '[[data.one_hot]]\ncolumn = "shop"', "length = 5"]:
                self.assertIn(part, config)
            (self.folder / "run.toml").write_text(config)
            trained = hotloop("train", "run.toml", "--epochs", "1", "--out", f"run{case}", cwd=self.folder)
            self.assertEqual(trained.returncode, 0, trained.stderr)
            self.assertIn("3 groups by 'shop'", trained.stdout)
        self.write([f"{i % 12},{i % 5},{i % 7}" for i in range(120)], "patient,dose,answer")
        config, table = self.new("--target", "answer", "--group", "patient")
        self.assertIn('by = "group"', config)
        self.assertIn('inputs = ["dose"]', config)
        for arguments, message in {
            ("--group", "patent"): "[new] the group must be a column of the table. Received: \"patent\". Try: did you mean 'patient'?",
            ("--group", "answer"): '[new] the group must be another column than the target. Received: "answer". Try: --group with the column that names the series.',
        }.items():
            result = hotloop("new", "t.csv", "--target", "answer", *arguments, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (2, f"hotloop: {message}\n"))

    def test_steps_that_vary(self):
        start = datetime.datetime(2024, 1, 1)
        random = [start + datetime.timedelta(seconds=61 * i + (i * i % 7 if i % 3 == 0 else 0)) for i in range(300)]
        months = [datetime.datetime(1990 + i // 12, 1 + i % 12, 1) for i in range(300)]
        stretches = [start + datetime.timedelta(hours=i + 5 * (i // 12)) for i in range(300)]  # each shorter than a window
        dropped = [time for i, time in enumerate(self.hours(320)) if i % 64]
        for times, step in [(random, "61 s"), (months, "31 d"), (stretches, "1 h"), (dropped, None)]:
            self.write_hours([time.isoformat() for time in times])
            config, table = self.new("--target", "sales")
            with self.subTest(step=step):
                note = f"steps vary, most often {step}" if step else ""
                self.assertRegex(table, rf"(?m)^  when    time      times *{note}$")
                self.assertEqual('time_step = "any"' in config, step is not None)
                self.assertEqual("hour_of_day" in config, step != "31 d")
                (self.folder / "run.toml").write_text(config)
                trained = hotloop("train", "run.toml", "--epochs", "1", "--out", step or "dropped", cwd=self.folder)
                self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_the_next_row_is_forecast(self):
        self.write_hours([time.isoformat() for time in self.hours()])
        (self.folder / "run.toml").write_text(self.new("--target", "sales")[0])
        trained = hotloop("train", "run.toml", "--epochs", "1", cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        with open(self.folder / "t.csv", "a") as file:
            file.write("2024-01-13T12:00,3,\n")
        predicted = hotloop("predict", "runs/run", "t.csv", cwd=self.folder)
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        self.assertRegex(predicted.stdout, r"\n300,2024-01-13T12:00:00Z,\d")
        (self.folder / "few.csv").write_text("when,price\n2024-01-01T00:00,1\n")
        self.assertEqual(hotloop("predict", "runs/run", "few.csv", cwd=self.folder).stderr,
                         "hotloop: [csv] few.csv must have the column 'sales', which the lag 'sales_before' reads. Received: a header with 2 columns. "
                         "Try: the column as far as it is known; rows to forecast leave it empty.\n")

    def test_a_table_with_times(self):
        rows = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,{'' if i % 50 == 7 else i % 5},{['sun', 'rain'][i % 2]},{10 + i % 7},x\"y" for i in range(300)]
        self.write(rows, 'when,price,"the ""sky""",sales,shop')
        result = hotloop("new", "t.csv", "--target", "sales", "-o", "t.toml", cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (0, self.TIMES_TABLE), result.stderr)
        text = (self.folder / "t.toml").read_text()
        for part in ["# Left out: shop (one value).", 'inputs = ["price", "the \\"sky\\"", "sales_before", "hour", "weekday"]', 'time = "when"', 'missing = "forward"',
                     "length = 15", 'type = "lstm"', 'name = "the last known value"']:
            self.assertIn(part, text)
        self.assertEqual(hotloop("new", "t.csv", "--target", "sales", cwd=self.folder).stdout, text)
        trained = hotloop("train", "t.toml", "--epochs", "2", cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("the last known value", trained.stdout)
        (self.folder / "few.csv").write_text("\n".join((self.folder / "t.csv").read_text().splitlines()[:5]) + "\n")
        predicted = hotloop("predict", "runs/t", "few.csv", cwd=self.folder)
        self.assertIn("0 predictions of 4 rows\n  3 rows before a whole window, which takes 15 rows one after another with all inputs\n"
                      "  1 row without all inputs, the last: no 'sales_before' at few.csv:2\n", predicted.stderr)
        (self.folder / "few.csv").write_text("when,price\n2024-01-01T00:00,1\n")
        self.assertEqual(hotloop("predict", "runs/t", "few.csv", cwd=self.folder).stdout, "")
        again = hotloop("new", "t.csv", "--target", "sales", "-o", "t.toml", cwd=self.folder)
        self.assertEqual((again.returncode, again.stderr), (2, "hotloop: [new] the file to write must not exist. Received: t.toml. Try: another name, or --overwrite.\n"))
        (self.folder / "t.toml").write_text("")
        self.assertEqual(hotloop("new", "t.csv", "--target", "sales", "-o", "t.toml", "--overwrite", cwd=self.folder).returncode, 0)
        self.assertEqual((self.folder / "t.toml").read_text(), text)

    def test_rows_one_by_one_and_classes(self):
        self.write([f"{i},{i * 7 % 11},{'xy'[i % 3 == 0]},2024-01-01" for i in range(60)], "a;b;kind;day".replace(";", ","))
        for target, parts in {"kind": ['task = "classification"', "units = 2", 'by = "random"', "# Left out: day (one value)."], "b": ['column = "kind"', "units = 1"]}.items():
            (self.folder / "run.toml").write_text(hotloop("new", "t.csv", "--target", target, cwd=self.folder).stdout)
            for part in parts:
                self.assertIn(part, (self.folder / "run.toml").read_text())
            trained = hotloop("train", "run.toml", "--epochs", "2", "--out", target, cwd=self.folder)
            self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_refused(self):
        (self.folder / "s.csv").write_text("a;b\n1;2\n2;3\n")
        result = hotloop("new", "s.csv", "--target", "b", cwd=self.folder)
        self.assertEqual(result.stderr, 'hotloop: [new] the target must be a column of s.csv. Received: "b". '
                                        'Try: the file seems to use another separator: --separator ";".\n')
        self.write(["1,2,2024-01-01", "2,2,2024-01-02"], "a,b,day")
        for arguments, message in {
            ("--target", "A"): "[new] the target must be a column of t.csv. Received: \"A\". Try: did you mean 'a'?",
            ("--target", "b"): '[new] the target must be numbers or classes that vary. Received: "b". Try: another column as the target.',
            ("--target", "a", "--separator", ";;"): '[new] the separator must be one character. Received: ";;". '
                                                  "Try: --separator \";\", or --separator $'\\t' for tabs.",
        }.items():
            result = hotloop("new", "t.csv", *arguments, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (2, f"hotloop: {message}\n"))


if __name__ == "__main__":
    HOTLOOP = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
