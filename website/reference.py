"""Reference pages in Markdown, of what the registries and the command line know."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
LITERAL = re.compile(r"``([^`]+)``")
SECTION = re.compile(r"(Args|Raises|Returns|Yields):")
ENTRY = re.compile(r" {4}(\w+): (.*)")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each reference page."""
    from longcrawl.core.outputs import OUTPUTS
    from longcrawl.core.sources import SOURCES
    from longcrawl.core.stages import STAGES

    yield (
        "reference/stages.md",
        _kinds(STAGES, "Stages", "A recipe names them under `stages`, a program as `lc.text.MinWords(50)`."),
    )
    yield "reference/sources.md", _kinds(SOURCES, "Sources", "A recipe names one as `source: {builder: NAME, …}`.")
    yield "reference/outputs.md", _kinds(OUTPUTS, "Outputs", "A recipe names them under `outputs`.")
    yield "reference/recipes.md", _recipes()
    yield "reference/cli.md", _command_line()


def _kinds(registry: Any, title: str, about: str) -> str:
    from longcrawl.core.registry import describe_fields, presets_of

    parts = [f"# {title}\n\n{about} `longcrawl {title.lower()} NAME` prints the same."]
    for name in registry:
        kind = registry.find(name)
        text, entries = describe(inspect.getdoc(kind) or "")
        fields = [
            f"- **`{field}`** ({_code(takes)}, {default if default == 'must be given' else f'default `{default}`'})"
            + (f": {entries[field]}" if field in entries else "")
            for field, takes, default in describe_fields(kind)
        ]
        presets = sorted(presets_of(kind))
        parts += [f"## {name}", f"`{kind.__module__}.{kind.__qualname__}`", text]
        parts += ["**Fields**", "\n".join(fields)] if fields else []
        parts += [f"Presets: {', '.join(f'`{preset}`' for preset in presets)}"] if presets else []
    return "\n\n".join(parts) + "\n"


def _code(takes: str) -> str:
    return takes if takes.startswith(("a ", "text", "true")) else f"`{takes}`"


def describe(docstring: str) -> tuple[str, dict[str, str]]:
    """Return a docstring as Markdown, and what it says of each argument."""
    text: list[str] = []
    entries: dict[str, str] = {}
    section = entry = ""
    example = False
    for line in docstring.splitlines():
        if line.startswith(">>>") and not example:
            text += ["", "```python"]
            example = True
        if example and not line:
            text.append("```")
            example = False
        if example:
            text.append(line)
        elif found := SECTION.fullmatch(line):
            section = found[1]
            text += ["", f"**{section}**", ""] if section != "Args" else [""]
        elif section == "Args" and line.startswith("    "):
            if found := ENTRY.fullmatch(line):
                entry = found[1]
                entries[entry] = _plain(found[2])
            else:
                entries[entry] += f" {_plain(line.strip())}"
        elif section and line.startswith("    "):
            text.append(_plain(line.strip()))
        else:
            section = section if not line else ""
            text.append(_plain(line))
    return "\n".join([*text, "```"] if example else text).strip(), entries


def _plain(line: str) -> str:
    marked = LITERAL.sub(r"`\1`", ROLE.sub(r"`\1`", line))
    return f"\n{marked}" if marked.startswith("* ") else marked


def _recipes() -> str:
    from importlib.resources import files

    import longcrawl as lc

    parts = ["# Recipes\n\n`longcrawl run NAME --out FOLDER` runs one, `--set FIELD=VALUE` changes it."]
    for name, about in lc.recipes().items():
        recipe = files("longcrawl").joinpath(f"recipes/{name}.yaml").read_text("utf-8")
        parts.append(f"## {name}\n\n{about}\n\n```yaml\n{recipe.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _command_line() -> str:
    import typer

    from longcrawl.cli.commands import app

    parts = ["# Command line\n\n`longcrawl COMMAND --help` prints the same."]
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]  # a group
        if inner := getattr(command, "commands", None):
            parts += [_command(f"{name} {each}", under) for each, under in inner.items()]
        else:
            parts.append(_command(name, command))
    return "\n\n".join(parts) + "\n"


def _command(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    usage = " ".join(
        [f"longcrawl {name}", *(_argument(each) for each in arguments), *(["[OPTIONS]"] if options else [])]
    )
    lines = [f"- `{_argument(each)}`: {each.help or ''}" for each in arguments]
    for each in options:
        value = each.default() if callable(each.default) else each.default
        default = "" if value in (None, False, True, ()) or each.required else f" By default `{value}`."
        names = ", ".join(each.opts + each.secondary_opts)
        lines.append(f"- `{names}`: {each.help or ''}{default}")
    example = (command.epilog or "").removeprefix("Example: ")
    blocks = [f"## {name}", command.help or "", f"```text\n{usage}\n```", "\n".join(lines)]
    blocks += [f"Example: `{example.replace(', or ', '`, or `')}`"] if example else []
    return "\n\n".join(block for block in blocks if block)


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required or name.startswith("[") else f"[{name}]"
