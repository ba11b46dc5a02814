"""Every metric that a case is measured by. harness.core.metric_words has what tables call their values."""

from harness.core.records import Clock, Metric

# Every clock is a metric of its own; docs/clocks.md says what each of them times.
CLOCKS: dict[Clock, Metric] = {
    "wall": Metric(name="wall", unit="us"),
    "device": Metric(name="device", unit="us"),
    "gpumode": Metric(name="gpumode", unit="us"),
}
HOST = Metric(name="host", unit="us")  # what the hosts of GPUs need to queue a call
RANKED: dict[str, Clock] = {"cpu": "wall", "cuda": "device", "rocm": "wall"}  # the clock that ranks, by device
THEIRS = Metric(name="theirs", unit="us")  # whatever a folder's own eval.py times
MEMORY = Metric(name="memory", unit="bytes")  # that a call holds of its device at most
COST = Metric(name="cost", unit="cost")  # of a solver's last answer
GAP = Metric(name="area", unit="gap")  # the mean over the limit of 1 - bound / cost, where 1 is no answer
TOKENS = Metric(name="tokens", unit="tokens/s", better="more")  # of all sequences, over the whole generation
# Whose limit is that of one step after the other. A generation that speculates may pass it, and is not held for that.
STEPWISE = frozenset({TOKENS.name})
TTFT = Metric(name="ttft", unit="us")  # time to first token
STEP = Metric(name="step", unit="us")  # of a token after the first
TIME_TO_TARGET = Metric(name="time_to_target", unit="s")  # of a training run
SAMPLES = Metric(name="samples", unit="sequences")  # that a run needed to its target
