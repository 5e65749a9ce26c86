"""Times as shares of what the memory can do."""

from . import measure, roofline

ROUNDS = 9


def gigabytes_a_second(call, nbytes):
    """10^9 bytes a second of a call that has to move `nbytes`: by its median time."""
    return nbytes / measure.in_turn([call], ROUNDS)[0].median / 1e9


def share_of_copy(call, nbytes):
    """Per cent: time of a streaming copy that moves as many bytes over that of the call, in turn."""
    _, copy = roofline.streaming_copy(nbytes // 2)
    ours, copied = measure.in_turn([call, copy], ROUNDS)
    return 100 * copied.ratio_to(ours)[1]
