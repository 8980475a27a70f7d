"""Flip one bit of one file that is read back, and see that somebody notices, or that nothing changes.

    python benchmarks/faults/flips.py --n 5000 [--seed 1] [--minutes 10] [TARGET ...]

Files are inputs whose compression has checksums, the work folder of a stopped run, a saved index, the ledger, outputs
under the feeds of a trainer, the manifest, recipe, card and plan. A flip is survived if the result is the same, if
whatever reads the file says so in a sentence or a report, and, for what is only shown to people, if ``verify`` does.
The last line is trials survived / trials tried.
"""

from _campaign import Campaign, arguments, warm_up
from _stored_targets import finished_targets, input_targets, saved_targets, work_targets


def main() -> None:
    options = arguments(__doc__, 500).parse_args()
    warm_up(options.seed)
    Campaign("flips", [*input_targets(), *work_targets(), *finished_targets(), *saved_targets()], options).run()


if __name__ == "__main__":
    main()
