#!/usr/bin/env python3
"""What a run leaves behind: TensorBoard events, JSON output, reports, folders that are not overwritten, completion.

usage: runs_test.py HOTLOOP [unittest arguments]
"""
import csv
import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import series

HOTLOOP = ""


def hotloop(*arguments, cwd=None):
    environment = dict(os.environ, HOTLOOP_CACHE="0")
    return subprocess.run([HOTLOOP, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)


def crc32c(data):
    """Bit by bit, from the polynomial: nothing is shared with the program's table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """(number, value) of a protobuf message."""
    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value, at
    at = 0
    while at < len(data):
        tag, at = varint(at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(at)
        elif kind == 1:
            value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        elif kind == 5:
            value, at = struct.unpack("<f", data[at:at + 4])[0], at + 4
        else:
            size, at = varint(at)
            value, at = data[at:at + size], at + size
        yield tag >> 3, value


def events(path):
    data = path.read_bytes()
    at = 0
    while at < len(data):
        (size,), length = struct.unpack("<Q", data[at:at + 8]), data[at:at + 8]
        assert struct.unpack("<I", data[at + 8:at + 12])[0] == masked(length)
        record = data[at + 12:at + 12 + size]
        assert struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0] == masked(record)
        yield dict(fields(record))
        at += 16 + size


class Tags(html.parser.HTMLParser):
    VOID = {"meta"}

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.links = [], set(), []

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.config = series.write(cls.folder, "interp")
        result = hotloop("train", "job.toml", cwd=cls.folder)
        assert result.returncode == 0, result.stderr
        cls.run_folder = cls.folder / "runs" / "job"
        cls.output = result.stdout


class Classes(unittest.TestCase):
    """A classification: what `train` and `eval` print, the report, the metrics."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        series.write_utterances(cls.folder)
        result = hotloop("train", "job.toml", cwd=cls.folder)
        assert result.returncode == 0, result.stderr
        cls.output = result.stdout
        cls.metrics = json.loads((cls.folder / "runs" / "job" / "metrics.json").read_text())

    def test_every_test_series_is_counted_once(self):
        confusion = self.metrics["confusion"]
        self.assertEqual(confusion["classes"], ["x", "y", "z"])
        counts = confusion["counts"]
        total = sum(map(sum, counts))
        self.assertEqual(total, self.metrics["samples"]["test"])
        right = sum(counts[c][c] for c in range(3))
        self.assertAlmostEqual(confusion["accuracy"], right / total, places=12)
        self.assertAlmostEqual(self.metrics["test"], right / total, places=12)

    def test_the_table_is_on_the_terminal_and_in_the_report(self):
        counts = self.metrics["confusion"]["counts"]
        total = sum(map(sum, counts))
        right = sum(counts[c][c] for c in range(3))
        self.assertIn(f"accuracy on the {total} test series\n", self.output)
        lines = [f"Accuracy {right / total:.4f}: {right} of {total} right", "  wanted        x    y    z  <- predicted"]
        lines += [f"  {name:<10}" + "".join(f"{n:5}" for n in row) for name, row in zip("xyz", counts, strict=True)]
        self.assertIn("\n".join(lines) + "\n", self.output)
        self.assertIn("        inputs standardised by the training rows\n", self.output)
        page = (self.folder / "runs" / "job" / "report.html").read_text()
        table = page[page.index('<table class="confusion">'):]
        table = table[:table.index("</table>")]
        cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
        self.assertEqual([int(c) for c in cells if c.isdigit()], [n for row in counts for n in row])

    def test_the_commonest_class_stands_beside_it(self):
        # Three of four series are z, whatever the split.
        folder = self.folder / "skewed"
        folder.mkdir()
        series.write_utterances(folder)
        table = folder / "utterances.csv"
        rows = [row.split(",") for row in table.read_text().splitlines()]
        for row in rows[1:]:
            row[1] = "z" if int(row[0]) % 4 else "xy"[int(row[0]) // 4 % 2]
        table.write_text("\n".join(map(",".join, rows)) + "\n")
        result = hotloop("train", "job.toml", cwd=folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        metrics = json.loads((folder / "runs" / "job" / "metrics.json").read_text())
        counts = metrics["confusion"]["counts"]
        share = sum(counts[2]) / sum(map(sum, counts))
        self.assertEqual(metrics["baselines"], [{"name": "the commonest class", "test": share}])
        self.assertRegex(result.stdout, rf"(?m)^  the commonest class +{share:.4f}$")
        evaluated = hotloop("eval", "runs/job", cwd=folder)
        self.assertIn(f"  the commonest class  {share:.4f}\n", evaluated.stdout)
        other = hotloop("eval", "runs/job", "--data", table, cwd=folder)
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertNotIn("commonest", other.stdout)
        (folder / "job.toml").write_text((folder / "job.toml").read_text().replace('metric = "accuracy"', 'metric = "f1"'))
        self.assertNotIn("commonest", hotloop("train", "job.toml", cwd=folder).stdout)

    def test_eval_says_the_same(self):
        result = hotloop("eval", "runs/job", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        table = self.output[self.output.index("Accuracy"):self.output.index("Where the time went")]
        self.assertIn(table.strip(), result.stdout)
        self.assertIn("the same to the last bit", result.stdout)


class Crc(unittest.TestCase):
    def test_of_the_test_itself(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # RFC 3720, appendix B.4 has more
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)


class TensorBoard(Case):
    def test_bytes(self):
        (file,) = self.run_folder.glob("events.out.tfevents.*")
        first, start, *rest = events(file)
        self.assertEqual(first[3], b"brain.Event:2")
        self.assertEqual(dict(fields(start[7])), {1: 1})
        seen = {}
        for event in rest:
            value = dict(fields(dict(fields(event[5]))[1]))
            seen.setdefault(value[1].decode(), []).append((event[2], value[2]))
        self.assertEqual(sorted(seen), ["loss/train", "mae/validation", "samples_per_second"])
        history = [line.split(",") for line in (self.run_folder / "history.csv").read_text().splitlines()[1:]]
        steps = [4, 8, 12]  # 53 training windows in batches of 16
        self.assertEqual([step for step, _ in seen["loss/train"]], steps)
        for (_, loss), (_, metric), row in zip(seen["loss/train"], seen["mae/validation"], history, strict=True):
            self.assertEqual((loss, metric), tuple(struct.unpack("<ff", struct.pack("<ff", float(row[1]), float(row[2])))))

    def test_tensorboard_reads_it(self):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest("the package tensorboard is not installed")
        run = self.folder / "runs" / "resumed"  # beside the other, since the configuration names the table from there
        shutil.copytree(self.run_folder, run)
        self.assertEqual(hotloop("train", "--resume", run, "--epochs", 5).returncode, 0)
        accumulator = EventAccumulator(str(run))
        accumulator.Reload()
        history = [line.split(",") for line in (run / "history.csv").read_text().splitlines()[1:]]
        for tag, column in [("loss/train", 1), ("mae/validation", 2)]:
            scalars = accumulator.Scalars(tag)
            self.assertEqual([s.step for s in scalars], [4, 8, 12, 16, 20])
            for scalar, row in zip(scalars, history, strict=True):
                self.assertAlmostEqual(scalar.value, float(row[column]), delta=1e-6)


class Output(Case):
    def test_report_is_one_well_formed_page(self):
        text = (self.run_folder / "report.html").read_text()
        tags = Tags()
        tags.feed(text)
        self.assertEqual(tags.open, [])
        self.assertEqual(tags.links, [])  # nothing beside the file
        self.assertNotIn("script", tags.seen)
        self.assertIn("prefers-color-scheme: dark", text)
        metrics = json.loads((self.run_folder / "metrics.json").read_text())
        self.assertIn(f"{metrics['test']:.4f}", text)
        for name in ["three rows ago", "ridge regression on the window", "Forecast against truth", "Training loss"]:
            self.assertIn(name, text)

    def test_json(self):
        train = hotloop("train", "job.toml", "--out", "json", "--json", cwd=self.folder)
        metrics = json.loads(train.stdout)
        self.assertEqual(metrics, json.loads((self.folder / "json" / "metrics.json").read_text()))
        self.assertIn("epoch 3/3", train.stderr)
        tested = json.loads(hotloop("eval", self.run_folder, "--json").stdout)
        self.assertEqual((tested["test"], tested["baselines"]), (metrics["test"], metrics["baselines"]))
        inspected = json.loads(hotloop("inspect", self.run_folder, "--json").stdout)
        self.assertEqual([t["name"] for t in inspected["tensors"]][0], "0.weight_ih_l0")
        self.assertEqual(len(inspected["checkpoint"]["history"]), 3)
        file = json.loads(hotloop("inspect", self.run_folder / "model.safetensors", "--json").stdout)
        self.assertEqual(file["tensors"], inspected["tensors"])
        self.assertIn("cpu", json.loads(hotloop("devices", "--json").stdout))
        explained = json.loads(hotloop("explain", self.config, "--json").stdout)
        self.assertEqual(explained["parameters"]["2.bias"], "f32[1]")

    def test_every_target_is_named(self):
        loads = [line.split(",")[0] for line in (self.folder / "series.csv").read_text().splitlines()[1:]]
        (self.folder / "two.csv").write_text("\n".join(["load,price", *(f"{v},{v}" for v in loads), ""]))
        text = self.config.read_text().split("[[baseline]]")[0].replace("series.csv", "two.csv")  # a column predicts one target
        text = text.replace('target = "load"', 'target = ["load", "price"]').replace("units = 1", "units = 2")
        (self.folder / "two.toml").write_text(text)
        metrics = json.loads(hotloop("train", "two.toml", "--json", cwd=self.folder).stdout)
        self.assertEqual(metrics["targets"], ["load", "price"])
        self.assertEqual(json.loads(hotloop("eval", "runs/two", "--json", cwd=self.folder).stdout)["targets"], metrics["targets"])
        self.assertIn("targets load, price, 2 inputs", hotloop("inspect", "runs/two", cwd=self.folder).stdout)

    def test_lines_fit_a_terminal(self):
        for text in [self.output, hotloop("inspect", self.run_folder).stdout, hotloop("eval", self.run_folder).stdout,
                     hotloop("devices").stdout, hotloop("explain", self.config).stdout]:
            for line in text.splitlines():
                if "/" not in line:  # a path is as long as it is
                    self.assertLessEqual(len(line), 80, line)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([HOTLOOP, "export-config", str(self.config)], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stderr),
                         (2, "hotloop: [output] the output must be writable. Received: No space left on device.\n"))


class Folders(Case):
    def test_runs_are_not_overwritten(self):
        before = (self.run_folder / "model.safetensors").read_bytes()
        result = hotloop("train", "job.toml", "--seed", 5, cwd=self.folder)
        self.assertIn("runs/job-2", result.stdout)
        self.assertEqual((self.run_folder / "model.safetensors").read_bytes(), before)
        self.assertNotEqual((self.folder / "runs" / "job-2" / "model.safetensors").read_bytes(), before)
        result = hotloop("train", "job.toml", "--out", "runs/job", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr),
                         (2, "hotloop: [run] the folder must not hold a run yet. Received: runs/job. Try: --resume runs/job to "
                             "go on with it, or --overwrite to replace it.\n"))

    def test_resume_with_more_epochs_is_the_longer_run(self):
        long, short = self.folder / "long", self.folder / "short"
        self.assertEqual(hotloop("train", self.config, "--out", long, "--epochs", 6).returncode, 0)
        self.assertEqual(hotloop("train", self.config, "--out", short, "--epochs", 2).returncode, 0)
        self.assertEqual(hotloop("train", "--resume", short, "--epochs", 6).returncode, 0)
        last = "checkpoints/step-00000024/model.safetensors"
        for name in ["model.safetensors", last]:
            self.assertEqual((long / name).read_bytes(), (short / name).read_bytes())
        self.assertIn("epochs = 6 ", (short / "config.toml").read_text())

    def test_a_job_that_does_not_fit_together_leaves_no_run(self):
        before = sorted((self.folder / "runs").iterdir())
        result = hotloop("train", "job.toml", "--set", "model.1.type=linear", "--set", "model.1.units=2", cwd=self.folder)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertEqual(sorted((self.folder / "runs").iterdir()), before)

    def test_resume_takes_no_other_configuration(self):
        result = hotloop("train", self.config, "--resume", self.run_folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("[arguments] --resume RUN goes on with RUN's own configuration", result.stderr)
        result = hotloop("train")
        self.assertEqual((result.returncode, result.stderr), (2, "hotloop: [arguments] train takes a CONFIG, or --resume RUN. "
                                                                 "Received: neither. Try: hotloop train --help.\n"))

    def test_resume_of_a_finished_run(self):
        run = self.folder / "runs" / "finished"
        shutil.copytree(self.run_folder, run)
        before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
        result = hotloop("train", "--resume", "runs/finished", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr, result.stdout), (
            0, "", "runs/finished is finished, with all of its 3 epochs.\nGo on with more: hotloop train --resume runs/finished --epochs 6\n"))
        result = hotloop("train", "--resume", "runs/finished", "--json", cwd=self.folder)
        self.assertEqual(json.loads(result.stdout), json.loads((run / "metrics.json").read_text()))
        self.assertEqual({p: p.read_bytes() for p in run.rglob("*") if p.is_file()}, before)
        # Ended after the last epoch, before the report: that is made up for.
        (run / "report.html").unlink()
        result = hotloop("train", "--resume", "runs/finished", cwd=self.folder)
        self.assertIn("        its 3 epochs are over: results and report again\n", result.stdout)
        self.assertTrue((run / "report.html").exists())

    def test_a_refused_resume_changes_nothing(self):
        run = self.folder / "runs" / "refused"
        shutil.copytree(self.run_folder, run)
        before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
        lambdas = ["--set", "baseline.1.lambdas=[1e5]", "--epochs", 5]
        table = self.folder / "shifted.csv"
        table.write_text((self.folder / "series.csv").read_text().replace("load,note\n", "load,note\n9,first\n"))
        result = hotloop("train", "--resume", run, "--data", table, *lambdas)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("the table and what is made of it must be those the run was started with", result.stderr)
        self.assertEqual({p: p.read_bytes() for p in run.rglob("*") if p.is_file()}, before)
        result = hotloop("train", "--resume", run, "--set", "model.0.hidden=4", *lambdas)
        self.assertEqual(result.returncode, 2, result.stdout)
        for name in ["config.toml", "baselines.json", "metrics.json"]:
            self.assertEqual((run / name).read_bytes(), before[run / name])

    def test_baselines_are_those_of_the_configuration(self):
        run = self.folder / "runs" / "baselines"
        ridge = ["--set", "baseline=[{type='ridge'}]"]
        self.assertEqual(hotloop("train", self.config, "--out", run, *ridge).returncode, 0)
        file = run / "baselines.json"
        # The last report is made again, with what is missing.
        old = file.read_bytes()
        file.unlink()
        (run / "report.html").unlink()
        self.assertIn("results and report again", hotloop("train", "--resume", run).stdout)
        self.assertEqual(file.read_bytes(), old)
        for epochs, baselines, count in [(4, "[{type='ridge',lambdas=[1e5]}]", 1), (5, "[]", 0), (6, "[{type='ridge'},{type='ridge',name='again'}]", 2)]:
            result = hotloop("train", "--resume", run, "--set", "baseline=" + baselines, "--epochs", epochs)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(len(json.loads(file.read_text())) if file.exists() else 0, count)
            result = hotloop("eval", run, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            tested = json.loads(result.stdout)["baselines"]
            self.assertEqual((len(tested), tested), (count, json.loads((run / "metrics.json").read_text())["baselines"]))

    def test_resume_of_a_run_that_stopped_early(self):
        impatient = ["--set", "train.patience=1", "--set", "train.min_delta=100"]
        result = hotloop("train", "job.toml", "--out", "runs/early", "--epochs", 9, *impatient, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = (self.folder / "runs" / "early" / "report.html").read_bytes()
        result = hotloop("train", "--resume", "runs/early", cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (
            0, "runs/early is finished. Stopped early: no epoch since 2 was better by more than min_delta, for 1 epochs.\n"
               "Go on with more patience: hotloop train --resume runs/early --set train.patience=2\n"))
        self.assertEqual((self.folder / "runs" / "early" / "report.html").read_bytes(), report)
        result = hotloop("train", "--resume", "runs/early", "--set", "train.patience=2", cwd=self.folder)
        self.assertIn("epoch 3/9", result.stdout)

    def test_a_run_stands_for_its_configuration(self):
        for command in ["explain", "export-config"]:
            with self.subTest(command=command):
                folder, file = (hotloop(command, path) for path in [self.run_folder, self.run_folder / "config.toml"])
                self.assertEqual((folder.returncode, folder.stderr), (0, ""))
                self.assertEqual(*(result.stdout.split("Training step")[0] for result in (folder, file)))  # times follow
        result = hotloop("train", "runs/job", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (
            2, "hotloop: [config] CONFIG must be a TOML file. Received: runs/job (a folder). Try: runs/job/config.toml.\n"))

    def test_eval_of_no_run(self):
        result = hotloop("eval", self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"RUN must be the folder of a run, with a config\.toml\. Received: .*no config\.toml in it")


class Export(Case):
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
        # Nothing is written over.
        self.assertEqual((again.returncode, again.stderr), (
            2, f"hotloop: [export] the folder to write must not exist. Received: {out}. Try: another name, or remove it.\n"))

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
            for program in ["./compiled", "./linked"]:
                printed = subprocess.run([program], cwd=out, check=True, capture_output=True, text=True).stdout
                self.assertEqual(printed, "0 0 0 " + 3 * "-2 -2 -2 " + "-2 -2\n")

    def test_the_header_says_how_the_source_is_compiled(self):
        out = self.folder / "flags"
        result = hotloop("export", self.run_folder, "-o", out, "--name", "load")
        (flags,) = re.findall(r"(?m)^//   (-O3 .*)$", (out / "load.h").read_text())
        self.assertIn(f"cc {flags} -c load.c", result.stdout)
        subprocess.run(["cc", *flags.split(), "-shared", "-fPIC", "-nostdlib", "-o", "load.so", "load.c"], cwd=out, check=True)
        called = subprocess.run(["nm", "-D", "--undefined-only", "load.so"], cwd=out, check=True, capture_output=True, text=True).stdout
        self.assertLessEqual({name.split("@")[0] for name in called.split() if len(name) > 1}, {"memcpy", "memset"})


class SeveralOutputs(Case):
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
        truth, scales = self.truths(), json.loads((run / "preparation.json").read_text())
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


class Predict(Case):
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
        result = hotloop("predict", "runs/job", "own.csv", "-o", "runs/job/config.toml", "--overwrite", cwd=self.folder)
        self.assertIn("the output must be another file than the inputs", result.stderr)
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
        for out in ["runs/job/metrics.json", "runs/../runs/job/baselines.json", "runs/job/new.csv", "runs/job/checkpoints/new.csv", "link/new.csv", "link.json"]:
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


class PyTorch(Case):
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


class EvalOfAnotherTable(Case):
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


class NaiveBaseline(Case):
    def test_knows_nothing_of_the_time_after_the_forecast(self):
        loads = [float(line.split(",")[0]) for line in (self.folder / "series.csv").read_text().splitlines()[1:]]
        for horizon, steps in [(0, 1), (5, 1), (0, 3), (2, 4)]:
            with self.subTest(horizon=horizon, steps=steps):
                text = self.config.read_text().split("[[baseline]]")[0].replace("steps = 3", "steps = 1")
                text = text.replace("length = 4", f"length = 4\nhorizon = {horizon}\nhorizon_steps = {steps}")
                text = text.replace("units = 1", f"units = {steps}")
                (self.folder / "ahead.toml").write_text(text + '[[baseline]]\ntype = "column"\ncolumn = "load_lag"\n')
                result = hotloop("train", "ahead.toml", "--json", "--epochs", 1, cwd=self.folder)
                self.assertEqual(result.returncode, 0, result.stderr)
                metrics = json.loads(result.stdout)
                first = 76  # of the test rows; a window's targets all lie there
                errors = []
                for row in range(first, 90 - steps + 1):
                    known = loads[row - max(horizon, 1)]
                    # Later steps repeat it: the values between are not known yet.
                    errors += [abs(loads[row + t] - known) for t in range(steps)]
                self.assertAlmostEqual(metrics["baselines"][0]["test"], sum(errors) / len(errors), places=5)

    def test_is_not_the_target_itself(self):
        (self.folder / "same.toml").write_text(self.config.read_text().replace('column = "load_lag"\nname', 'column = "load"\nname'))
        result = hotloop("train", "same.toml", cwd=self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\[same\.toml:\d+ \[\[baseline\]\]\] 'column' must be known when the forecast is made\. "
                                        r'Received: "load", which is the target\. Try: the name of a \[\[data\.lag\]\] of it')


class Completion(Case):
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
        result = subprocess.run(["bash", "-c", script, HOTLOOP], capture_output=True, text=True)
        self.assertEqual((result.stdout, result.stderr), ("--resume\n", ""))

    def test_unknown_shell(self):
        self.assertEqual(hotloop("completion", "tcsh").returncode, 2)


if __name__ == "__main__":
    HOTLOOP = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
