#!/usr/bin/env python3
"""hotloop new: what it makes of tables.

usage: new_test.py HOTLOOP [unittest arguments]
"""
import datetime
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import program
from program import Case, hotloop


class New(Case):
    """hotloop new: a configuration that trains as it is."""

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
            self.write_hours(self.hours(), lambda i, odd=odd: odd if i == 125 else str(10 + i % 7 + i % 24))
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
            self.write_hours(self.hours(), lambda i, odd=odd: odd if i == 125 else str(10 + i % 7))
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
        # A dot for each of the rows, which are in no order.
        dots = re.search(r'<path d="([^"]*)" class="hl-s0 hl-points"/>\n<path', (self.folder / "b" / "forecast.svg").read_text())
        self.assertEqual(dots.group(1).count("h0"), 9)

    def test_samples_of_several_rows(self):
        # Sixty recordings of six to nine rows, told apart by the speed of a wave that single rows do not show.
        rows = [f"r{s},{t / 10},{math.sin((0.3 + s % 2) * t + s):.4f},{('langsam', 'schnell, übermäßig')[s % 2]!r}".replace("'", '"')
                for s in range(60) for t in range(6 + s % 4)]
        self.write(rows, "recording,t,wave,label")
        config, table = self.new("--target", "label")
        self.assertIn("60 different texts; rows with the same one have the same target: --sample 'recording' takes them for one series", table)
        self.assertIn("\nEach row stands alone. Where one follows the other at equal steps: --in-order.\n", table)
        self.assertNotIn("--sample", self.new("--target", "wave")[1])
        config, table = self.new("--target", "label", "--sample", "recording")
        self.assertRegex(table, r"(?m)^  recording  sample    texts       60 different$")
        self.assertNotIn("stands alone", table)
        for part in ['sample = "recording"', 'inputs = ["t", "wave"]', 'type = "lstm"', 'metric = "accuracy"']:
            self.assertIn(part, config)
        (self.folder / "run.toml").write_text(config)
        trained = hotloop("train", "run.toml", "--epochs", "2", cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("42 training, 9 validation and 9 test series of up to 9 rows by 2 inputs", " ".join(trained.stdout.split()))
        # Names are cut between characters.
        self.assertRegex(trained.stdout, r"(?m)^  wanted    +langsam schnell,  <- predicted\n  langsam +[0-9]+ +[0-9]+\n  schnell,  +[0-9]+ +[0-9]+$")
        for arguments, message in {
            ("--target", "wave", "--sample", "recording"): "[new] the target must be the same in all rows of a sample. Received: other targets in line 2 and line 3, "
                                                           "which have one 'recording'. Try: --group 'recording', if these are series with a target in each row.",
            ("--target", "label", "--sample", "record"): "[new] the sample must be a column of the table. Received: \"record\". Try: did you mean 'recording'?",
            ("--target", "label", "--sample", "recording", "--group", "t"): "[new] rows must belong to groups or to samples. Received: --group 't' and --sample 'recording'. "
                                                                           "Try: --group for series with a target in each row, --sample for series that have one target each.",
        }.items():
            result = hotloop("new", "t.csv", *arguments, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (2, f"hotloop: {message}\n"))

    def test_rows_in_order_without_times(self):
        self.write([f"{math.sin(i / 5):.4f},{math.sin(i / 5 - 0.2):.4f}" for i in range(400)], "dry,wet")
        config, table = self.new("--target", "wet", "--in-order")
        self.assertNotIn("stands alone", table)
        for part in ['inputs = ["dry", "wet_before"]', "length = 20", 'type = "lstm"', 'column = "wet_before"']:
            self.assertIn(part, config)
        for part in ["time =", "hour", "[split]"]:
            self.assertNotIn(part, config)
        (self.folder / "run.toml").write_text(config)
        trained = hotloop("train", "run.toml", "--epochs", "2", cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_a_class_that_nearly_all_rows_have(self):
        kinds = {"auc": lambda i: "yes" if i % 10 == 0 else "no", "f1": lambda i: "yes" if i % 20 == 0 else "perhaps" if i % 20 == 1 else "no",
                 "accuracy": lambda i: "yes" if i % 5 == 0 else "no"}
        for metric, kind in kinds.items():
            self.write([f"{i % 7},{i % 5},{kind(i)}" for i in range(400)], "a,b,kind")
            config = self.new("--target", "kind")[0]
            self.assertIn(f'metric = "{metric}"' + ("\n" if metric == "accuracy" else "  # of accuracy, the commonest class alone has 0.90\n"), config)
            (self.folder / "run.toml").write_text(config)
            trained = hotloop("train", "run.toml", "--epochs", "2", "--out", metric, cwd=self.folder)
            self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_probabilities_of_classes(self):
        self.write([f"{i % 7},{i * 7 % 11},{'xyz'[i % 3]}" for i in range(60)], "a,b,kind")

        def predicted(run, *arguments):
            result = hotloop("predict", run, "t.csv", *arguments, cwd=self.folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            header, *rows = (line.split(",") for line in result.stdout.splitlines())
            return header, [(row[1], [float(cell) for cell in row[2:]]) for row in rows]

        (self.folder / "run.toml").write_text(self.new("--target", "kind")[0])
        trained = hotloop("train", "run.toml", "--epochs", "3", "--out", "kind", cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        header, rows = predicted("kind")
        self.assertEqual(header, ["row", "kind", "score_x", "score_y", "score_z"])
        header, others = predicted("kind", "--probabilities")
        self.assertEqual(header, ["row", "kind", "probability_x", "probability_y", "probability_z"])
        for (name, logits), (same, probabilities) in zip(rows, others, strict=True):
            self.assertEqual(name, same)
            for x, p in zip(logits, probabilities, strict=True):
                self.assertAlmostEqual(p, math.exp(x) / sum(map(math.exp, logits)), places=6)
        (self.folder / "run.toml").write_text(self.new("--target", "b")[0])
        self.assertEqual(hotloop("train", "run.toml", "--epochs", "1", "--out", "b", cwd=self.folder).returncode, 0)
        result = hotloop("predict", "b", "t.csv", "--probabilities", cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (2, "hotloop: [predict] probabilities are of classes, by a loss that knows them. Received: the loss mse. "
                                                                 "Try: no --probabilities, or the loss cross_entropy in training.\n"))

    def test_times_that_are_not_read(self):
        days = self.hours(60 * 24)[::24]
        for form, hint in {"%b %d, %Y": True, "%d %B %Y": True, "%d.%m.%y": True, "day %j": False}.items():
            self.write([f'"{day.strftime(form)}",{i % 5 + i % 11},{i % 13}' for i, day in enumerate(days)], "when,price,sales")
            table = self.new("--target", "sales")[1]
            shown = f"; if '{days[0].strftime(form)}' is a time: write it like 2024-01-31 or 31/1/2024 18:30"
            self.assertRegex(table, rf"(?m)^  when    left out  texts       60 different texts{re.escape(shown) if hint else ''}$")

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
    program.main()
