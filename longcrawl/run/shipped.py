"""The recipes that are shipped with longcrawl."""

from importlib import resources
from importlib.resources.abc import Traversable


def recipes() -> dict[str, str]:
    """Return the shipped recipes: a one-line description of each, by name."""
    import yaml  # the help of the commands starts without it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast, and missing where PyYAML was built so
    return {
        name: str(yaml.load(file.read_text("utf-8"), loader)["about"])  # noqa: S506  # both are safe loaders
        for name, file in shipped().items()
    }


def shipped() -> dict[str, Traversable]:
    """Return the files of the shipped recipes by name, sorted."""
    # The folder is not a package: importing it would replace the function longcrawl.recipes.
    folder = resources.files("longcrawl").joinpath("recipes")
    files = {file.name.removesuffix(".yaml"): file for file in folder.iterdir() if file.name.endswith(".yaml")}
    return dict(sorted(files.items()))
