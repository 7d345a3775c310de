#!/usr/bin/env python3
"""Paths and names of all kinds: of other folders, through links, that are no UTF-8, in any script; and programs as they are told.

usage: places_test.py HOTLOOP [unittest arguments]
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import program
import series
from program import Case, hotloop

PLAIN = """
[data]
file = "{file}"
target = {target}
inputs = {inputs}
{data}

[window]
length = 1

[split]
by = "random"

[[model]]
type = "last"

[[model]]
type = "linear"
units = {units}
{loss}

[train]
epochs = 2
batch_size = 16
{train}
"""


def plain(target, inputs, units=1, file="t.csv", data="", loss="", train=""):
    return PLAIN.format(file=file, target=target, inputs=inputs, units=units, data=data, loss=loss, train=train)


def columns(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class Paths(Case):
    def done(self, *arguments, cwd=None):
        result = hotloop(*arguments, cwd=cwd or self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_new_names_the_table_from_wherever_it_writes(self):
        (self.folder / "a").mkdir()
        (self.folder / "conf").mkdir()
        series.write(self.folder / "a")
        for out in ["../conf/there.toml", self.folder / "conf" / "there.toml"]:
            self.done("new", "series.csv", "--target", "load", "--in-order", "-o", out, "--overwrite", cwd=self.folder / "a")
            self.assertIn('\nfile = "../a/series.csv"\n', (self.folder / "conf" / "there.toml").read_text())

    def test_runs_below_a_link(self):
        series.write(self.folder)
        (self.folder / "project" / "deep").mkdir(parents=True)
        (self.folder / "runs").symlink_to("project/deep")
        self.done("train", "job.toml")
        self.assertIn("the same to the last bit", self.done("eval", "runs/job"))
        self.done("train", "--resume", "runs/job", "--epochs", 4)
        self.done("explain", "runs/job")

    def test_a_path_that_is_no_utf8(self):
        series.write(self.folder)
        name = os.fsdecode(b"r\xe9")

        def run(*arguments):
            result = subprocess.run([program.PATH, *arguments], capture_output=True, cwd=self.folder, env=dict(os.environ, HOTLOOP_CACHE="0"))
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout

        run("train", "job.toml", "--out", name)
        self.assertEqual(json.loads((self.folder / name / "metrics.json").read_bytes())["run"], "r\ufffd")
        self.assertTrue((self.folder / name / "report.html").exists())
        self.assertEqual(json.loads(run("inspect", name, "--json"))["run"], "r\ufffd")
        self.assertEqual(json.loads(run("predict", name, "series.csv", "-o", name + ".csv", "--json"))["out"], "r\ufffd.csv")
        self.assertEqual(json.loads(run("export", name, "-o", name + "_c", "--json"))["out"], "r\ufffd_c")

    def test_an_output_keeps_its_permissions_and_links(self):
        series.write(self.folder, "interp")
        self.done("train", "job.toml")
        out = self.folder / "out.csv"
        out.write_text("")
        out.chmod(0o600)
        (self.folder / "link.csv").symlink_to("out.csv")
        self.done("predict", "runs/job", "series.csv", "-o", "link.csv", "--overwrite")
        self.assertTrue((self.folder / "link.csv").is_symlink())
        self.assertEqual(out.stat().st_mode & 0o777, 0o600)
        self.assertTrue(out.read_text().startswith("row,load\n"))


class Names(Case):
    def write(self, header, row, count=200):
        random.seed(1)
        (self.folder / "t.csv").write_text("\n".join([header, *(row(i) for i in range(count)), ""]))

    def numbers(self, i):
        return ",".join(f"{random.random():.4f}" for _ in range(3))

    def train(self, config, *arguments):
        (self.folder / "t.toml").write_text(config)
        result = hotloop("train", "t.toml", *arguments, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_long_ones_of_any_script_are_cut_between_characters(self):
        targets = ["Стоимость электроэнергии в Москве", "温度" * 10]
        self.write(",".join([*targets, "z"]), self.numbers)
        config = plain(json.dumps(targets, ensure_ascii=False), '["z"]', 2) + '[[baseline]]\ntype = "ridge"\nname = "Гребневая регрессия по окну"\n'
        output = self.train(config)
        (self.folder / "runs" / "t" / "report.html").read_text("utf-8")
        table = output[output.index("mae of each target"):].splitlines()[1:4]
        self.assertIn("  Стоимость электроэнерг..", table[1])
        self.assertIn("  " + "温度" * 5 + "温..", table[2])
        self.assertEqual(len({columns(line) for line in table}), 1, table)
        heading = output.index("mae on the")
        self.assertEqual(len({columns(line) for line in output[heading:].splitlines()[1:3]}), 1)

    def test_many_classes(self):
        self.write("label,x", lambda i: f"k{i % 60},{random.random():.4f}", 1200)
        classes = plain('"label"', '["x"]', 60, data='task = "classification"', loss='[loss]\ntype = "cross_entropy"', train='metric = "accuracy"')
        output = self.train(classes)
        self.assertRegex(output, r"\n +wanted +predicted\n( +\d+  k\d+ +k\d+\n){8}  \(the largest confusions of 60 classes: metrics.json has them all\)\n")
        metrics = json.loads((self.folder / "runs" / "t" / "metrics.json").read_text())
        cells = metrics["confusion"]["cells"]
        self.assertNotIn("counts", metrics["confusion"])
        self.assertEqual(sum(n for _, _, n in cells), metrics["samples"]["test"])
        self.assertAlmostEqual(sum(n for w, p, n in cells if w == p) / metrics["samples"]["test"], metrics["confusion"]["accuracy"])
        page = (self.folder / "runs" / "t" / "report.html").read_text()
        table = page[page.index('<table class="confusion">'):]
        self.assertLessEqual(table[:table.index("</table>")].count("<tr>"), 51)

    def test_a_column_with_a_star(self):
        self.write("y,x*,xs", self.numbers)
        self.train(plain('"y"', '["x*"]'))
        self.assertEqual(list(json.loads((self.folder / "runs" / "t" / "metrics.json").read_text())["scales"]["inputs"]), ["x*"])

    def test_units(self):
        self.write("y,x,z", self.numbers)
        for metric, end in {"mae": ", in units of y", "mse": ", in squared units of y", "r2": ""}.items():
            output = self.train(plain('"y"', '["x"]', train=f'metric = "{metric}"'))
            self.assertIn(f"\n{metric} on the 30 test windows{end}\n", output)


class Explain(Case):
    def test_shows_the_step_that_a_training_runs(self):
        random.seed(3)
        with open(self.folder / "s.csv", "w") as file:
            file.write("id,w,x,z,label\n")
            for i in range(60):
                for _ in range(random.randint(2, 6)):
                    file.write(f"s{i},{1 + i % 3},{random.random():.4f},{random.random():.4f},{'abc'[i % 3]}\n")
        sampled = """
[data]
file = "s.csv"
target = "label"
task = "classification"
sample = "id"
weight = "w"
balance_classes = true
inputs = ["x", "z"]
[[model]]
type = "gru"
hidden = 4
[[model]]
type = "dropout"
[[model]]
type = "last"
[[model]]
type = "linear"
units = 3
[loss]
type = "cross_entropy"
[train]
metric = "accuracy"
epochs = 1
batch_size = 8
steps_per_call = {steps}
"""
        for steps in (1, 3):
            (self.folder / "s.toml").write_text(sampled.replace("{steps}", str(steps)))
            trained = hotloop("train", "s.toml", "--out", f"run{steps}", cwd=self.folder)
            self.assertEqual(trained.returncode, 0, trained.stderr)
            (program_line,) = re.findall(r"(?m)^program     (.*)$", trained.stdout)
            for option in [[], ["--profile"]]:
                explained = hotloop("explain", "s.toml", *option, cwd=self.folder)
                self.assertEqual(explained.returncode, 0, explained.stderr)
                self.assertEqual(re.findall(r"(?m)^program     (.*)$", explained.stdout)[0], program_line)
                self.assertIn("\nTraining step, 3 in a call\n" if steps > 1 else "\nTraining step\n", explained.stdout)


class Messages(Case):
    def test_a_resumed_run_keeps_its_precision(self):
        series.write(self.folder, "interp")
        self.assertEqual(hotloop("train", "job.toml", cwd=self.folder).returncode, 0)
        self.refused(hotloop("train", "--resume", "runs/job", "--epochs", 4, "--precision", "f64", cwd=self.folder),
                     "[resume] [train] precision must be that the run was started with. Received: f64. Try: precision = \"f32\".")

    def test_a_run_that_diverged_at_once_has_no_model(self):
        series.write(self.folder, "interp")
        self.assertEqual(hotloop("train", "job.toml", "--set", "optimizer.learning_rate=1e30", cwd=self.folder).returncode, 2)
        for arguments in [["eval", "runs/job"], ["predict", "runs/job", "series.csv"], ["export", "runs/job", "-o", "c"]]:
            self.refused(hotloop(*arguments, cwd=self.folder),
                         "[run] RUN must have completed an epoch, whose parameters are in model.safetensors. Received: runs/job, whose loss was not "
                         "finite in the first epoch. Try: a training with a smaller learning rate.")

    def test_numbers_that_are_too_small_have_a_remedy(self):
        config = series.write(self.folder)
        for given, remedy in {"train.epochs=0": "epochs = 10, the default", "train.seed=-1": "seed = 0, the default",
                              "train.batch_size=0": "batch_size = 32, the default", "window.length=0": "length = 1",
                              "data.inputs=[]": 'inputs = ["<column>"]', "data.separator=ab": 'separator = ";", or separator = "\\t" for tabs'}.items():
            result = hotloop("export-config", config, "--set", given)
            self.assertEqual((result.returncode, result.stderr[result.stderr.index("Try: "):]), (2, f"Try: {remedy}.\n"))


if __name__ == "__main__":
    program.main()
