#!/usr/bin/env python3
"""The command line as a user meets it: help texts, completion, arguments, configurations and tables that are refused.

usage: cli_test.py HOTLOOP [unittest arguments]     HOTLOOP_UPDATE_GOLDEN=1 rewrites the golden texts
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import program
import series
from program import EXAMPLES, HERE, Case, RunCase, hotloop

COMMANDS = ["train", "eval", "predict", "import", "export", "inspect", "explain", "export-config", "new", "devices", "completion"]


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
        for label in ["model", "cores", "target", "caches", "backends", "CUDA"]:
            self.assertRegex(result.stdout, rf"(?m)^  {label} +\S")
        cpu = json.loads(hotloop("devices", "--json").stdout)["cpu"]
        self.assertEqual("with bfloat16 amx" in result.stdout, cpu["target_of_bfloat16"] != cpu["target"])
        gpu = json.loads(hotloop("devices", "--json").stdout)["gpu"]
        if gpu["usable"]:
            self.assertEqual(set(gpu) - {"usable"}, {"name", "compute_capability", "multiprocessors", "memory_bytes", "versions"})
            self.assertIn(gpu["name"], " ".join(result.stdout.split()))
        else:
            self.assertEqual(set(gpu), {"usable", "missing"})
            self.assertIn(f"CUDA not usable: {gpu['missing']}", " ".join(result.stdout.split()))

    def test_devices_without_a_gpu(self):
        with unittest.mock.patch.dict(os.environ, HOTLOOP_CUDA="off"):
            self.assertIn("\n  CUDA        not usable: HOTLOOP_CUDA=off hides it\n", hotloop("devices").stdout)
            self.assertEqual(json.loads(hotloop("devices", "--json").stdout)["gpu"], {"usable": False, "missing": "HOTLOOP_CUDA=off hides it"})


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
            ("train", "job.toml", "--epoch", "3"): "The following arguments were not expected: --epoch 3. "
                                                   "Received: hotloop train job.toml --epoch 3. Try: did you mean '--epochs'?",
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
        notes.write_text("a first line that is longer than what a message shows of it\nand another\n")
        self.refused(hotloop("inspect", notes), f"[safetensors] {notes} must have a header inside the file, of at most 100 MB. "
                     "Received: text that begins with 'a first line that is longer than what a ...'. "
                     "Try: write the checkpoint again; this file is damaged or of another format.")

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
        result = hotloop("export-config", "demand.toml", cwd=EXAMPLES)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.golden("export_demand.toml", result.stdout)
        written = hotloop("export-config", "demand.toml", "-o", self.folder / "again.toml", cwd=EXAMPLES)
        self.assertEqual((written.returncode, written.stdout), (0, f"{self.folder}/again.toml written.\n"))
        text = (self.folder / "again.toml").read_text()
        self.assertEqual(hotloop("export-config", "again.toml", cwd=self.folder).stdout, text)
        self.assertEqual(hotloop("export-config", self.folder / "again.toml", cwd=EXAMPLES).stdout, result.stdout)
        self.refused(hotloop("export-config", "again.toml", "-o", "again.toml", "--overwrite", cwd=self.folder),
                     "[export-config] the output must be another file than the inputs. Received: again.toml, which is again.toml. Try: another name.")

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
        first = hotloop("export-config", config, cwd=self.folder)
        self.assertEqual(first.returncode, 0, first.stderr)
        again = self.folder / "again.toml"
        again.write_text(first.stdout)
        self.assertEqual(hotloop("export-config", again, cwd=self.folder).stdout, first.stdout)
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

    def test_a_gpu_has_no_backend(self):
        self.refused(hotloop("train", series.write(self.folder), "--device", "cuda"),
                     "[--device cuda [train]] 'device' must be auto or cpu with backend = \"interp\". Received: \"cuda\". "
                     "Try: leave out the backend, which a GPU does not have.")

    def test_a_gpu_that_is_not_there(self):
        config = series.write(self.folder, "llvm")
        with unittest.mock.patch.dict(os.environ, HOTLOOP_CUDA="off"):
            self.refused(hotloop("train", config, "--device", "cuda", "--out", self.folder / "run"),
                         "[compile] device cuda needs a CUDA device. Received: HOTLOOP_CUDA=off hides it. Try: device=\"auto\" or \"cpu\".")
            self.assertFalse((self.folder / "run").exists())
            self.assertIn('device = "cuda"', hotloop("export-config", config, "--device", "cuda").stdout)

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
                         "Received: 0. Try: epochs = 10, the default.")

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


class Completion(RunCase):
    def test_every_command_and_option(self):
        for shell in ["bash", "zsh", "fish"]:
            result = hotloop("completion", shell)
            self.assertEqual(result.returncode, 0)
            for word in ["train", "predict", "resume", "overwrite", "export-config"]:
                self.assertIn(word, result.stdout)
            if path := shutil.which(shell):
                script = self.folder / f"completion.{shell}"
                script.write_text(result.stdout)
                check = subprocess.run([path, "-n", script], capture_output=True, text=True)
                self.assertEqual((check.returncode, check.stderr), (0, ""))

    def test_bash_completes(self):
        script = 'source <("$0" completion bash); COMP_WORDS=(hotloop train --res) COMP_CWORD=2; _hotloop; echo "${COMPREPLY[@]}"'
        result = subprocess.run(["bash", "-c", script, program.PATH], capture_output=True, text=True)
        self.assertEqual((result.stdout, result.stderr), ("--resume\n", ""))

    def test_unknown_shell(self):
        self.assertEqual(hotloop("completion", "tcsh").returncode, 2)


if __name__ == "__main__":
    program.main()
