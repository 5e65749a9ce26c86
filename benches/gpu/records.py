"""What is recorded of a case: its times, its shares of copy bandwidth, its ratios to peers, its targets."""

import dataclasses

from . import cases, check, problems, timing

OF_COPY = 0.9
"""Of lookups and pooled lookups: the share of copy bandwidth to reach, by algorithmic bytes."""

OF_COPY_FROM = 1 << 27
"""Bytes from which that is asked: those of a shorter call, twice a large L2 or less, are gone before it has started."""

TIMES_TORCH = 2.0
"""Of sums and steps: how many times as long torch's way is to take."""

LAUNCH_SECONDS = 15e-6
"""Of a call with the check of indices answered later: what it may keep the host."""

LAUNCH_CASES = (
    cases.Case("gather", 1000, 64, 32),
    cases.Case("bag", 1000, 64, 8, 4),
    cases.Case("scatter", 1000, 64, 32),
    cases.Case("update", 1000, 64, 8, 4, rule="SGD"),
    cases.Case("update", 1000, 64, 8, 4, rule="Adam"),
)
"""Calls so small that the host is what takes the time."""

CHECKS = ("off", "later", "now")
"""When a bad index is reported: never, later, or by the call, which then waits for the device."""


def empty_of(case, status, **more):
    """A record with what is known of a case without running it."""
    return {"id": str(case), "status": status, **dataclasses.asdict(case), **more}


def of_case(case, tools, clock, bandwidth, limit):
    """Check a case, time its ways within about `limit` seconds, and say what that means."""
    with tools.index_check("later"):  # as torch does: the host does not wait for the answer
        of_cpu, wrong = check.compare(case, tools)
        again = check.same_bits_again(case, tools)
        (ours, *peers), errors = _working(_ways(case, tools))
        timings = timing.in_turn(clock, [ours.call, *(way.call for way in peers)], limit)
        warm = timing.warm(clock, ours.call)
    algorithmic, distinct = problems.moved(case)
    seconds = timings[0].median
    measured = [
        _peer(case, way.name, timings[0], other, wrong.get(way.name))
        for way, other in zip(peers, timings[1:], strict=True)
    ]
    share = algorithmic / seconds / bandwidth
    aimed = case.op in ("gather", "bag") and algorithmic >= OF_COPY_FROM
    return empty_of(
        case,
        "measured",
        us=seconds * 1e6,
        us_warm=warm * 1e6,
        spread=timing.spread(timings[0]),
        rounds=len(timings[0].samples),
        algorithmic_bytes=algorithmic,
        distinct_bytes=distinct,
        of_copy=share,
        of_copy_distinct=distinct / seconds / bandwidth,
        target=OF_COPY if aimed else None,
        reached=share >= OF_COPY if aimed else None,
        bits_of_cpu=of_cpu,
        same_bits_again=again,
        peers=measured + [{"name": name, "error": text} for name, text in errors.items()],
    )


def _working(ways):
    """(ways that run, what the others raise): each is warm afterwards. What fastemb's raises is not caught."""
    ours, *peers = ways
    errors = {way.name: check.attempt(_twice, way)[1] for way in peers}
    _twice(ours)
    return [ours, *(way for way in peers if not errors[way.name])], {n: error for n, error in errors.items() if error}


def _twice(way):
    way.call()
    way.call()


def _peer(case, name, ours, other, difference):
    low, ratio, high = other.ratio_to(ours)
    aimed = case.op in ("scatter", "update") and name.startswith("torch")
    return {
        "name": name,
        "us": other.median * 1e6,
        "spread": timing.spread(other),
        "ratio": ratio,
        "ratio_q1": low,
        "ratio_q3": high,
        "difference": difference,
        "target": TIMES_TORCH if aimed else None,
        "reached": ratio >= TIMES_TORCH if aimed else None,
        "error": None,
    }


def of_launches(tools, clock):
    """A record for each way of each small call, and of fastemb's for each time at which a bad index is reported."""
    for case in LAUNCH_CASES:
        name = " ".join(word for word in (case.op, case.rule) if word)
        made, error = check.attempt(_ways, case, tools)
        if error:
            yield {"op": name, "way": "fastemb", "error": error}
            continue
        ours, *peers = made
        for when in CHECKS:
            yield _launch(name, f"fastemb, check {when}", ours, tools.index_check(when), clock, when == "later")
        for way in peers:
            yield _launch(name, way.name, way, tools.index_check("later"), clock, aimed=False)


def _ways(case, tools):
    return problems.ways(case, problems.device_arrays(case, tools.xp), tools)


def _launch(name, label, way, checked, clock, aimed):
    def timed():
        with checked:
            return timing.host_seconds(clock, way.call)

    seconds, error = check.attempt(timed)
    if error:
        return {"op": name, "way": label, "error": error}
    return {
        "op": name,
        "way": label,
        "host_us": seconds * 1e6,
        "target": LAUNCH_SECONDS * 1e6 if aimed else None,
        "reached": seconds <= LAUNCH_SECONDS if aimed else None,
        "error": None,
    }
