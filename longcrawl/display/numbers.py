"""Numbers as people read them: shares, counts with their noun, measured values."""


def percent(share: float | None, unit: str = " %") -> str:
    """Return a share of one in percent; "" where it is not known.

    >>> percent(0.4812)
    '48.1 %'
    """
    return "" if share is None else f"{100 * share:.1f}{unit}"


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun.

    >>> counted(1, "file"), counted(1200, "file"), counted(2, "entry", "entries")
    ('1 file', '1,200 files', '2 entries')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def figure(value: float | None) -> str:
    """Return a measured value; whole ones without digits behind the point.

    >>> figure(1200.0), figure(0.25), figure(None)
    ('1,200', '0.25', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"
