"""--random-programs K: perceptrons, cells and differential equations drawn at random, and a derivative of each (tasks/_random_programs.py)."""

import random

from harness.draws import Draws

NUMBERS = 1_000_000  # of a result: more would measure the memory it is written to
WORK = 1e9  # multiplications and additions


def draw(count, seed, work=WORK):
    """Every pair of network and what is asked of it in turn; those of more work or numbers are drawn again."""
    from tasks import _random_programs as programs

    source, tasks = random.Random(seed), []
    while len(tasks) < count:
        network, of = programs.ASKED[len(tasks) % len(programs.ASKED)]
        sizes = programs.draw_sizes(source, network, of, f"{network}_{of}_{seed}_{len(tasks)}")
        flops, numbers = programs.work(sizes)
        if flops <= work and numbers <= NUMBERS:
            tasks.append(programs.task(sizes))
    return tasks


def classes():
    from tasks._random_programs import TITLES

    asked = lambda of: lambda task: task.sizes["of"] == of  # noqa: E731
    return (("all", lambda task: True), *((title, asked(of)) for of, title in TITLES.items()))


DRAWS = Draws(
    stem="random_programs", heading="Programs drawn at random",
    intro="a perceptron of one to three hidden layers (4 to 128 units), a cell in a loop (6 kinds of update, with and without layer normalisation, 3 to 96 units, "
    "5 to 200 steps) or Runge-Kutta steps of a perceptron's field, with one of seven activations, 1 to 1000 samples, f32 or (a quarter) f64, and what is asked of it",
    classes=classes(), draw=draw, rivals=("jax", "jax_0_4_31"),
    chart_title="Programs drawn at random: time as a multiple of Hotloop's", x_label="time of a call of Hotloop, us", x=lambda task, seconds: 1e6 * seconds,
)  # fmt: skip
