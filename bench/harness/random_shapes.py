"""--random-shapes K: LSTM training steps of sizes that nobody tuned for."""

import random

from harness.draws import Draws, spread


def draw(count, seed):
    """Sizes spread evenly over their logarithms: T 8..200, I 1..64, H 8..256, B 1..512, at most about 4 GFLOP a step."""
    from tasks import recurrent

    source, tasks = random.Random(seed), []
    while len(tasks) < count:
        task = recurrent.task("lstm", *(spread(source, *ends) for ends in ((8, 200), (1, 64), (8, 256), (1, 512))), group="random shapes")
        if task.flops <= 4e9 and task.name not in {t.name for t in tasks}:
            tasks.append(task)
    return tasks


DRAWS = Draws(
    stem="random_shapes", heading="Shapes that nobody tuned for",
    intro="training steps of an LSTM in f32: T 8..200, I 1..64, H 8..256, B 1..512, even in the logarithm, at most 4 GFLOP a step",
    classes=(("H <= 64", lambda t: t.sizes["H"] <= 64), ("H > 64", lambda t: t.sizes["H"] > 64)), draw=draw, rivals=("torch", "jax"),
    chart_title="LSTM training step, random T, I, H and B: time as a multiple of Hotloop's", x_label="hidden size", x=lambda task, seconds: task.sizes["H"],
)  # fmt: skip
