#!/usr/bin/env python3
"""What a command may write over, and what is left where it fails.

usage: outputs_test.py HOTLOOP [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import program
import series
from program import Case, RunCase, hotloop


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def start(*arguments, cwd):
    return subprocess.Popen([program.PATH, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, HOTLOOP_CACHE="0"))


class Claims(Case):
    def test_a_folder_of_other_files_is_refused_and_stays(self):
        series.write(self.folder, "interp")
        mine = self.folder / "mine"
        (mine / "checkpoints").mkdir(parents=True)
        for name in ["checkpoints/epoch1.pt", "metrics.json", "model.safetensors"]:
            (mine / name).write_text("mine")
        before = contents(mine)
        for options in [(), ("--overwrite",), ("--set", "train.metric=accuracy")]:
            self.refused(hotloop("train", "job.toml", "--out", "mine", *options, cwd=self.folder),
                         "[run] the folder must be empty, or hold a run alone. Received: mine, which holds other files. Try: --out with another name.")
            self.assertEqual(contents(mine), before)

    def test_a_folder_without_a_run_has_no_number_of_its_own(self):
        series.write(self.folder, "interp")
        (self.folder / "runs" / "job").mkdir(parents=True)
        (self.folder / "runs" / "job" / "notes.txt").write_text("mine")
        result = hotloop("train", "job.toml", cwd=self.folder)
        self.assertIn("Written to runs/job-2;", result.stdout, result.stderr)
        self.assertEqual([p.name for p in (self.folder / "runs" / "job").iterdir()], ["notes.txt"])

    def test_an_empty_folder_that_was_there_stays(self):
        series.write(self.folder, "interp")
        (self.folder / "made").mkdir()
        for out in ["made", "new"]:
            result = hotloop("train", "job.toml", "--out", out, "--set", "train.metric=accuracy", cwd=self.folder)
            self.assertEqual(result.returncode, 2, result.stdout)
        self.assertEqual(list((self.folder / "made").iterdir()), [])
        self.assertFalse((self.folder / "new").exists())

    def test_a_run_that_came_in_the_meantime_stays(self):
        series.write(self.folder, "interp")
        os.mkfifo(self.folder / "slow.csv")
        slow = start("train", "job.toml", "--data", "slow.csv", "--out", "run", cwd=self.folder)
        with open(self.folder / "slow.csv", "w") as feed:  # waits until it is read
            quick = hotloop("train", "job.toml", "--out", "run", cwd=self.folder)
            self.assertEqual(quick.returncode, 0, quick.stderr)
            before = contents(self.folder / "run")
            feed.write((self.folder / "series.csv").read_text())
        error = slow.communicate(timeout=60)[1]
        self.assertEqual((slow.returncode, error),
                         (2, "hotloop: [run] the folder must not hold a run yet. Received: run. Try: --resume run to go on with it, or --overwrite "
                             "to replace it.\n"))
        self.assertEqual(contents(self.folder / "run"), before)

    def test_trainings_at_the_same_time_have_numbers(self):
        series.write(self.folder, "interp")
        all_at_once = [start("train", "job.toml", "--seed", seed, cwd=self.folder) for seed in range(4)]
        for process in all_at_once:
            error = process.communicate(timeout=120)[1]
            self.assertEqual(process.returncode, 0, error)
        names = ["job", "job-2", "job-3", "job-4"]
        self.assertEqual(sorted(p.name for p in (self.folder / "runs").iterdir()), names)
        for name in names:
            self.assertTrue((self.folder / "runs" / name / "report.html").exists(), name)


class Overwriting(RunCase):
    def setUp(self):
        self.before = contents(self.run_folder)

    def unchanged(self):
        self.assertEqual(contents(self.run_folder), self.before)

    def test_a_refused_training_leaves_the_run(self):
        for assignment in ["train.metric=accuracy", "model.1.type=tanh", "data.target=none", "train.epochs=0"]:
            result = hotloop("train", "job.toml", "--out", "runs/job", "--overwrite", "--set", assignment, cwd=self.folder)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.unchanged()

    def test_its_own_inputs_are_not_replaced(self):
        (self.folder / "link.toml").symlink_to("runs/job/config.toml")
        for arguments, named in [(["runs/job/config.toml"], "runs/job/config.toml"), (["link.toml", "--data", "series.csv"], "link.toml"),
                                 (["job.toml", "--data", "runs/job/history.csv", "--set", "data.target=epoch", "--set", 'data.inputs=["train_loss"]',
                                   "--set", "window.length=1", "--set", "data.lag=[]", "--set", "data.periodic=[]"], None)]:
            result = hotloop("train", *arguments, "--out", "runs/job", "--overwrite", cwd=self.folder)
            self.assertEqual(result.returncode, 2, result.stdout)
            if named:
                self.assertEqual(result.stderr, f"hotloop: [run] a run that is replaced must not hold what the new one is made from. Received: {named}. "
                                                "Try: another --out, or a copy of it elsewhere.\n")
            self.unchanged()

    def test_moves_that_were_killed_are_put_right(self):
        whole = sorted(self.run_folder.iterdir(), key=lambda p: (p.name == "config.toml", p.name))
        for moved in [0, 1, len(whole) - 1, len(whole)]:
            for command in [["train", "job.toml", "--out", "runs/moved", "--overwrite", "--set", "train.metric=accuracy"], ["eval", "runs/moved"]]:
                run = shutil.copytree(self.run_folder, self.folder / "runs" / "moved")
                (run / ".replaced").mkdir()
                for file in whole[:moved]:
                    (run / file.name).rename(run / ".replaced" / file.name)
                result = hotloop(*command, cwd=self.folder)
                self.assertEqual(result.returncode, 2 if command[0] == "train" else 0, result.stderr)
                self.assertTrue(contents(run) == self.before)
                shutil.rmtree(run)

    def in_the_first_epoch(self, run):
        """A training that replaces the run, which has taken a step of its first epoch. The oracle is slow."""
        process = start("train", "job.toml", "--out", run, "--overwrite", "--epochs", 1, "--seed", 3, "--set", "model.0.hidden=60",
                        "--set", "checkpoint.every_steps=1", cwd=self.folder)
        while not (run / ".replaced" / "config.toml").exists() or not list((run / "checkpoints").glob("step-*")):
            self.assertIsNone(process.poll())
        return process

    def test_a_run_stays_until_an_epoch_of_the_next_is_over(self):
        of_old = {command: hotloop(*command, cwd=self.folder).stdout for command in [("eval", "runs/job"), ("predict", "runs/job", "series.csv")]}
        for number, status in [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]:
            run = shutil.copytree(self.run_folder, self.folder / "runs" / f"ended{number}")
            process = self.in_the_first_epoch(run)
            process.send_signal(number)
            out, error = process.communicate(timeout=60)
            self.assertEqual((process.returncode, error), (status, ""))
            if number == signal.SIGINT:
                self.assertIn(f"Until an epoch is over, the run that it replaces stays in {run}/.replaced.\n", out)
            unfinished = contents(run)
            for (name, _, *table), wanted in of_old.items():
                result = hotloop(name, run, *table, cwd=self.folder)
                self.assertEqual((result.returncode, result.stdout), (0, wanted.replace("runs/job", f"{run}/.replaced")), result.stderr)
                self.assertIn(f"{run} has completed no epoch yet: of the run that it replaces, {run}/.replaced\n", result.stderr)
            self.assertIn(f"Replaces {run}/.replaced, once an epoch is over\n", hotloop("inspect", run).stdout)
            self.assertTrue(contents(run) == unfinished)
            other = shutil.copytree(run, self.folder / "runs" / f"other{number}")
            # The one that is kept for a third is the one with a model.
            result = hotloop("train", "job.toml", "--out", other, "--overwrite", "--set", "optimizer.learning_rate=1e30", cwd=self.folder)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertTrue(contents(other) == self.before)
            result = hotloop("train", "--resume", run, cwd=self.folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("going on after step ", result.stdout)
            self.assertFalse((run / ".replaced").exists())
            self.assertNotEqual((run / "model.safetensors").read_bytes(), self.before[pathlib.Path("model.safetensors")])

    def test_a_run_that_diverges_at_once_makes_way_for_the_old_one(self):
        run = shutil.copytree(self.run_folder, self.folder / "runs" / "diverged")
        result = hotloop("train", "job.toml", "--out", run, "--overwrite", "--set", "optimizer.learning_rate=1e30", "--json", cwd=self.folder)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(json.loads(result.stdout)["status"], "non_finite_loss")
        self.assertIn(f"{run} is the run again that was to be replaced.\n", result.stderr)
        self.assertTrue(contents(run) == self.before)

    def test_a_run_that_has_been_replaced_goes(self):
        run = shutil.copytree(self.run_folder, self.folder / "runs" / "replaced")
        shutil.copytree(run, run / ".replaced")  # killed between its first model and that
        (run / ".replaced" / "model.safetensors").write_text("old")
        self.assertEqual(hotloop("eval", run, cwd=self.folder).returncode, 0)
        self.assertTrue(contents(run) == self.before)

    def test_new(self):
        table = self.folder / "mine.csv"
        table.write_text((self.folder / "series.csv").read_text())
        os.mkfifo(self.folder / "fifo")
        (self.folder / "link.csv").symlink_to("mine.csv")
        for out, message in [
            ("mine.csv", "the output must be another file than the inputs. Received: mine.csv, which is mine.csv. Try: another name."),
            ("link.csv", "the output must be another file than the inputs. Received: link.csv, which is mine.csv. Try: another name."),
            ("fifo", "the output must be a file. Received: fifo. Try: another name, or no -o for the standard output."),
        ]:
            result = hotloop("new", "mine.csv", "--target", "load", "--in-order", "-o", out, "--overwrite", cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (2, f"hotloop: [new] {message}\n"))
        self.assertEqual(table.read_text(), (self.folder / "series.csv").read_text())
        self.assertTrue((self.folder / "fifo").is_fifo())

    def test_export(self):
        result = hotloop("export", "runs/job", "-o", "runs/job", "--overwrite", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr),
                         (2, "hotloop: [export] the folder to write must be another one than the model's. Received: runs/job. Try: another name.\n"))
        self.unchanged()


if __name__ == "__main__":
    program.main()
