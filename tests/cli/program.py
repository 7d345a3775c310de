"""What the tests of the command line share: the program, a folder of their own, and a finished run."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import series

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
EXAMPLES = HERE.parent.parent / "examples"
PATH = ""


def hotloop(*arguments, cwd=None):
    environment = dict(os.environ, HOTLOOP_CACHE="0")
    return subprocess.run([PATH, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment,
                          timeout=300)


class Case(unittest.TestCase):
    """Each test has a folder of its own."""

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


class RunCase(unittest.TestCase):
    """The tests of a class look at one run: of the small job by the oracle, unless the class writes another one."""

    @staticmethod
    def write_job(folder):
        return series.write(folder, "interp")

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.config = cls.write_job(cls.folder)
        result = hotloop("train", "job.toml", cwd=cls.folder)
        assert result.returncode == 0, result.stderr
        cls.run_folder = cls.folder / "runs" / "job"
        cls.output = result.stdout


def main():
    """The program is the first argument, unittest has the others."""
    global PATH
    PATH = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
