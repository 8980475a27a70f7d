"""Damage every kind of file that is read, at random, and count how reading ends.

    python benchmarks/faults/fuzz.py --n 20000 [--seed 1] [--minutes 10] [TARGET ...]

Reading damaged files has to give the same as before, a sentence (an error of ours, or a report under on_bad_files), or
a difference that the format cannot notice. Where a format has checksums, a difference that nobody notices is a failure,
and so are a traceback, a sentence that is none, a trial of more than 20 s or 4 GB, and a dead process. The last line is
trials survived / trials tried.
"""

from _campaign import Campaign, arguments, warm_up
from _input_targets import source_targets
from _output_targets import description_targets, rectangle_targets, run_targets, shard_targets
from _record_targets import record_targets


def main() -> None:
    parser = arguments(__doc__, 2_000)
    options = parser.parse_args()
    warm_up(options.seed)
    targets = [*record_targets(), *source_targets(), *shard_targets(), *rectangle_targets()]
    targets += [*run_targets(), *description_targets()]
    Campaign("fuzz", targets, options).run()


if __name__ == "__main__":
    main()
