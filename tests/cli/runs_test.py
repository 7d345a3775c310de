#!/usr/bin/env python3
"""What a run leaves behind: TensorBoard events, JSON output, reports, folders that are not overwritten.

usage: runs_test.py HOTLOOP [unittest arguments]
"""
import html.parser
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(1, str(pathlib.Path(__file__).parents[1]))
import program
import series
from crc32c import crc32c
from program import RunCase, hotloop


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


class Classes(RunCase):
    """A classification: what `train` and `eval` print, the report, the metrics."""

    write_job = staticmethod(series.write_utterances)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.metrics = json.loads((cls.run_folder / "metrics.json").read_text())

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


class TensorBoard(RunCase):
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


class Output(RunCase):
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
        self.assertIsNone(metrics["device"]["gpu"])
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
                self.assertEqual(line, line.rstrip())

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([program.PATH, "export-config", str(self.config)], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stderr),
                         (2, "hotloop: [output] the output must be writable. Received: No space left on device.\n"))


class Folders(RunCase):
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


class NaiveBaseline(RunCase):
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


if __name__ == "__main__":
    program.main()
