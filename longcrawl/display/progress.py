"""Progress bars, which the settings of `datasets` turn off."""

import os
import sys
from typing import Any

OFF = "HF_DATASETS_DISABLE_PROGRESS_BARS"
_TRUE = ("1", "ON", "YES", "TRUE")


def progress_bar(*shown: Any, **options: Any) -> Any:
    """Return a bar of tqdm, as `datasets` makes it where that is imported; importing it takes half a second of CPU.

    >>> with progress_bar(total=2, disable=True) as bar:
    ...     bar.update()
    """
    if "datasets" in sys.modules:
        from datasets.utils import tqdm
    else:
        from tqdm.auto import tqdm

        if os.environ.get(OFF, "").upper() in _TRUE:
            options["disable"] = True
    return tqdm(*shown, **options)
