#!/usr/bin/env python3
"""Training that is killed, or that finds the disk full: what was there stays whole, and going on ends in the same bits.

usage: faults_test.py HOTLOOP [FAIL_IO_LIBRARY] [unittest arguments]
  HOTLOOP_KILLS=300   kills by SIGKILL at random moments (default 10)
  HOTLOOP_FAULTS=all  every operation on files, not every 5th
"""
import csv
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import series

HOTLOOP = FAIL_IO = ""
KILLS = int(os.environ.get("HOTLOOP_KILLS", "10"))
STRIDE = 1 if os.environ.get("HOTLOOP_FAULTS") == "all" else 5
# Checkpoints within epochs and at their ends, batches gathered ahead, several steps a call, a state of the optimiser.
SETTINGS = ["--set", "checkpoint.every_steps=3", "--set", "train.steps_per_call=2"]


def without_times(training):
    """Nor the number of the run, of which there is one each."""
    training = {k: v for k, v in training.items() if k not in ("run", "seconds", "epoch_seconds", "checksum")}
    training["history"] = [{k: v for k, v in r.items() if k != "seconds"} for r in training["history"]]
    return training


def checkpoints(run):
    return sorted(p for p in (run / "checkpoints").iterdir() if p.name.startswith("step-"))


def result_of(run):
    """Everything that must be the same to the last bit."""
    last = checkpoints(run)[-1]
    training = json.loads((last / "training.json").read_text())
    history = [row[:3] for row in csv.reader((run / "history.csv").read_text().splitlines())]
    files = {name: (last / name).read_bytes() for name in ["model.safetensors", "best.safetensors", "optimizer.safetensors"]}
    return {"model": (run / "model.safetensors").read_bytes(), "last": last.name, "history": history,
            "training": without_times(training), **files}


class Case(unittest.TestCase):
    EPOCHS, ROWS, PATIENCE = 6, 150, 50

    @classmethod
    def setUpClass(cls):
        base = tempfile.TemporaryDirectory()
        cls.addClassCleanup(base.cleanup)
        cls.folder = pathlib.Path(base.name)
        cls.config = cls.write_job()

    @classmethod
    def write_job(cls):
        return series.write(cls.folder, "llvm", rows=cls.ROWS)

    @classmethod
    def run_hotloop(cls, *arguments, **options):
        return subprocess.run([HOTLOOP, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env=cls.environment(), **options)

    @classmethod
    def environment(cls, **more):
        """Compiled code comes from a cache of the test's own."""
        inherited = {k: v for k, v in os.environ.items() if k != "HOTLOOP_CACHE"}
        return dict(inherited, HOTLOOP_CACHE_DIR=str(cls.folder / "cache"), **more)

    @classmethod
    def command(cls, run):
        """Starts the run, or goes on with it."""
        if (run / "config.toml").exists():
            return [HOTLOOP, "train", "--resume", str(run)]
        return [HOTLOOP, "train", str(cls.config), "--out", str(run), "--epochs", str(cls.EPOCHS), *SETTINGS,
                "--set", f"train.patience={cls.PATIENCE}"]

    @classmethod
    def train(cls, run, **environment):
        return subprocess.run(cls.command(run), capture_output=True, text=True, env=cls.environment(**environment), timeout=120)


class Faults(Case):
    STRIDE = STRIDE

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ["warm", "reference"]:  # the first one compiles
            start = time.monotonic()
            result = cls.train(cls.folder / name)
            assert result.returncode == 0, result.stderr
            cls.duration = time.monotonic() - start
        cls.reference = result_of(cls.folder / "reference")

    def injected(self, run, at, how):
        return self.train(run, LD_PRELOAD=FAIL_IO, HOTLOOP_FAIL_AT=str(at), HOTLOOP_FAIL_HOW=how)

    def check_whole(self, run):
        """What is there can be read."""
        if not (run / "config.toml").exists():
            return
        result = self.run_hotloop("inspect", run, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        json.loads(result.stdout)

    def finish_and_compare(self, run):
        result = self.train(run)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result_of(run), self.reference)
        leftovers = [str(p) for p in run.rglob(".tmp-*")]
        self.assertEqual(leftovers, [])

    def test_the_reference_is_one_piece_of_training(self):
        # The reference itself has several steps a call and checkpoints; neither may change the result.
        plain = self.folder / "plain"
        result = self.run_hotloop("train", self.config, "--out", plain, "--epochs", self.EPOCHS, "--set", "train.prefetch=false")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((plain / "model.safetensors").read_bytes(), self.reference["model"])

    def test_kills_at_random_moments(self):
        rng = random.Random(7)
        kills = runs = 0
        while kills < KILLS:
            run = self.folder / f"killed{runs}"
            runs += 1
            killed_here = 0
            while killed_here < 8 and kills < KILLS:
                process = subprocess.Popen(self.command(run), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                           env=self.environment())
                try:
                    process.wait(rng.uniform(0, 1.1 * self.duration))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    killed_here += 1
                error = process.communicate()[1]
                self.assertIn(process.returncode, (0, -signal.SIGKILL), error)
                self.check_whole(run)
                if process.returncode == 0:
                    break
            self.finish_and_compare(run)
            shutil.rmtree(run)
        print(f"\n{kills} kills in {runs} runs: every result the same to the last bit", file=sys.stderr)

    def fail_at_operations_on_files(self, how, check_ended):
        """Every STRIDE-th operation on files fails, each in a run of its own: it ends as it must, is whole, and goes on to the reference's bits."""
        at = 1
        while True:
            run = self.folder / f"{how}_at_{at}"
            result = self.injected(run, at, how)
            if result.returncode == 0:  # there are fewer operations
                break
            check_ended(run, result)
            self.check_whole(run)
            self.finish_and_compare(run)
            shutil.rmtree(run)
            at += self.STRIDE
        self.assertGreater(at, 40)
        print(f"\n{how} at operations 1 to {at - self.STRIDE} by {self.STRIDE}", file=sys.stderr)

    @unittest.skipUnless(sys.platform == "linux", "preloads a library")
    def test_kills_at_operations_on_files(self):
        self.fail_at_operations_on_files("kill", lambda run, result: self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr))

    @unittest.skipUnless(sys.platform == "linux", "preloads a library")
    def test_disk_full_at_operations_on_files(self):
        def check_ended(run, result):
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(result.stderr, r"^hotloop: \[\w+\] .*No space left on device.*Try: ")
            self.assertEqual([str(p) for p in run.rglob(".tmp-*")], [])

        self.fail_at_operations_on_files("full", check_ended)

    @unittest.skipUnless(sys.platform == "linux", "preloads a library")
    def test_a_run_that_is_being_replaced_can_be_read_at_any_time(self):
        for how in ["kill", "full"]:
            at = 1
            while True:
                run = shutil.copytree(self.folder / "reference", self.folder / f"replaced_{how}_{at}")
                result = subprocess.run([HOTLOOP, "train", self.config, "--out", run, "--overwrite", "--epochs", "1", "--seed", "3", *SETTINGS],
                                        capture_output=True, text=True, timeout=120,
                                        env=self.environment(LD_PRELOAD=FAIL_IO, HOTLOOP_FAIL_AT=str(at), HOTLOOP_FAIL_HOW=how))
                if result.returncode == 0:  # there are fewer operations
                    break
                evaluated = self.run_hotloop("eval", run)
                self.assertEqual(evaluated.returncode, 0, f"{how} at {at}: {evaluated.stderr}")
                shutil.rmtree(run)
                at += self.STRIDE
            self.assertGreater(at, 40)
            self.assertFalse((run / ".replaced").exists())

    def test_a_full_disk_leaves_a_finished_run_as_it_was(self):
        run = self.folder / "finished"
        self.assertEqual(self.train(run).returncode, 0)
        before = {p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file() and "tfevents" not in p.name}
        result = subprocess.run([HOTLOOP, "train", "--resume", str(run), "--epochs", "9"], capture_output=True, text=True,
                                env=self.environment(LD_PRELOAD=FAIL_IO, HOTLOOP_FAIL_AT="1", HOTLOOP_FAIL_HOW="full"))
        self.assertEqual(result.returncode, 2)
        after = {p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file() and "tfevents" not in p.name}
        self.assertEqual(before, after)

    def test_a_file_size_limit_is_an_error_not_a_signal(self):
        run = self.folder / "limited"
        result = subprocess.run(self.command(run), capture_output=True, text=True, env=self.environment(),
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("File too large", result.stderr)
        self.assertIn("Try: free some space", result.stderr)


class FaultsOfClasses(Faults):
    """The same with all that training carries along: lengths, class weights, keys of dropout, buffers of batch norm."""

    EPOCHS, STRIDE = 4, 3 * STRIDE

    @classmethod
    def write_job(cls):
        return series.write_utterances(cls.folder, "llvm")


class Stops(Case):
    """Signals that ask for an end, folders in use, checkpoints that are damaged."""

    EPOCHS = PATIENCE = 1000000  # ends by a signal alone

    def start(self, run):
        process = subprocess.Popen(self.command(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment())
        while not process.stdout.readline().startswith("epoch"):
            self.assertIsNone(process.poll())
        return process

    def test_signals_stop_with_a_checkpoint(self):
        for number, status in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
            run = self.folder / f"stopped{status}"
            process = self.start(run)
            process.send_signal(number)
            out, error = process.communicate(timeout=60)
            self.assertEqual((process.returncode, error), (status, ""))
            self.assertRegex(out, r"Stopped after step \d+ of epoch \d+\.\nGo on with: hotloop train --resume ")
            position = json.loads((checkpoints(run)[-1] / "training.json").read_text())
            metrics = json.loads((run / "metrics.json").read_text())
            self.assertEqual((metrics["status"], metrics["epoch"], metrics["step"]),
                             ("stopped", position["epoch"], position["step"]))
            # A fit of fewer epochs than are done ends at once, with its best epoch tested.
            result = self.run_hotloop("train", "--resume", run, "--epochs", 1)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("this model, epoch", result.stdout)

    def test_one_program_at_a_time(self):
        run = self.folder / "shared"
        process = self.start(run)
        result = self.train(run)
        self.assertEqual(result.returncode, 2)
        self.assertIn("[run] a run must be written by one program at a time.", result.stderr)
        process.terminate()
        process.communicate()

    def stopped(self, name):
        run = self.folder / name
        process = self.start(run)
        process.terminate()
        process.communicate()
        return run

    def refused(self, run, pattern):
        result = self.train(run)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, pattern)

    def test_damaged_checkpoints(self):
        run = self.stopped("damaged")
        last = checkpoints(run)[-1]
        good = {name: (last / name).read_bytes() for name in ["model.safetensors", "optimizer.safetensors", "training.json"]}

        def damage(name, data, pattern):
            (last / name).write_bytes(data)
            self.refused(run, pattern)
            (last / name).write_bytes(good[name])

        model, training = good["model.safetensors"], good["training.json"]
        damage("model.safetensors", model[:-1], r"must be what was written\. Received: \d+ bytes instead of \d+\. Try: delete .*step-")
        flipped = bytearray(model)
        flipped[-3] ^= 1
        damage("model.safetensors", bytes(flipped), r"must be what was written\. Received: another checksum\.")
        damage("optimizer.safetensors", b"", r"optimizer\.safetensors must be what was written")
        damage("training.json", training[:100], r"training\.json must be whole")
        damage("training.json", training.replace(b'"epoch": ', b'"epoch": 1', 1), r"training\.json must be what was written")
        damage("training.json", b"{}", r"training\.json must be whole")
        (last / "model.safetensors").unlink()
        self.refused(run, r"\[checkpoint\] the file must be readable")
        shutil.rmtree(last)  # the remedy that the messages name
        result = self.run_hotloop("train", "--resume", run, "--epochs", 1)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_hostile_parameters(self):
        run = self.stopped("hostile")
        file = run / "model.safetensors"
        for data, pattern in [
            (struct.pack("<Q", 100 << 30) + b"{}", r"a header inside the file, of at most 100 MB"),
            (b"\x02", r"8 bytes of header length"),
            (struct.pack("<Q", 2) + b"[]", r"a JSON object as header"),
        ]:
            file.write_bytes(data)
            result = self.run_hotloop("eval", run)
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"\[safetensors\] .*model\.safetensors must have " + pattern)

    def test_resume_refuses_another_training(self):
        run = self.stopped("other")
        for assignment, pattern in [("train.seed=9", r"\[resume\] seed must be that of the checkpoint, 1\. Received: 9\."),
                                    ("train.batch_size=8", r"\[resume\] batch_size must be that of the checkpoint"),
                                    ("split.train=0.5", r"\[resume\] the table and what is made of it must be those the run was started with"),
                                    ("model.0.hidden=5", r"tensor '0\.weight_ih_l0' of .*must be f32\[20,3\]")]:
            result = self.run_hotloop("train", "--resume", run, "--set", assignment)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(result.stderr, pattern)

    def test_folders(self):
        blocked = self.folder / "file"
        blocked.write_text("")
        result = self.run_hotloop("train", self.config, "--out", blocked / "run")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\[run\] the folder must be one that can be made\. Received: .*Not a directory")
        result = self.run_hotloop("train", "--resume", self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\[run\] RUN must be the folder of a run, with a config\.toml")


if __name__ == "__main__":
    HOTLOOP = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if len(sys.argv) > 1 and sys.argv[1].endswith(".so"):
        FAIL_IO = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
