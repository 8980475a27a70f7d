"""Reference pages in Markdown, generated from the registries, the feeds and the command line."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
LITERAL = re.compile(r"``([^`]+)``")
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
ENTRY = re.compile(r" {4}(\w+): (.*)")
SKIPPED = re.compile(r"\s+# doctest: .*")

STAGE_FIELDS = {
    "attention_dependency": "{model: gpt2, top_fraction: 0.1}",
    "c4_quality": "{definitions: paper}",
    "decontaminate": "{preset: gpt3, against: [exam.jsonl]}",
    "dependency_score": "{model: gpt2, top_fraction: 0.1}",
    "exact_substring": "{min_tokens: 50, policy: mask}",
    "extract_text": "{engine: blocks}",
    "fast_text_classifier": "{model: quality.bin, at_least: 0.5}",
    "gopher_quality": "{min_words: 100}",
    "gzip_ratio": "{low_quantile: 0.2, high_quantile: 0.8}",
    "information_gain": "{model: gpt2, top_fraction: 0.1}",
    "language": "{keep: [en, de]}",
    "lexical_dependency": "{min_score: 0.5}",
    "min_bytes": "{n: 65536}",
    "min_chars": "{n: 500}",
    "min_hash": "{preset: fineweb}",
    "min_tokens": "{n: 4096}",
    "min_words": "{n: 50}",
    "opt_out": "{lists: [domains.txt]}",
    "personal_data": "{preset: fineweb}",
    "roll": "{seed: 0}",
    "sequence_classifier": "{model: HuggingFaceFW/fineweb-edu-classifier, at_least: 3}",
    "shuffle": "{seed: 0}",
    "tokenize": "{tokenizer: gpt2}",
    "truncate": "{n: 65536}",
    "url_filter": "{lists: blocklists, categories: [adult, gambling]}",
    "windows": "{max_length: 2048, overlap_size: 256}",
}
"""Fields of a stage in its recipe snippet; the others need none."""
SOURCE_FIELDS = {
    "composed": "data_dir: run/composed",
    "datatrove": "data_files: shards/*.ds",
    "gpt-simple": "data_dir: tokenized",
    "hub": "path: org/name, text_field: content",
    "installed": "packages: [numpy]",
    "levanter": "data_dir: cache",
    "litdata": "data_dir: optimized",
    "mds": "data_dir: streaming",
    "megatron": "data_files: shards/*.bin",
    "nanogpt": "data_files: train.bin, end_of_text: 50256",
    "olmo-core": "data_files: shards/*.npy",
    "rectangle": "data_dir: run/rectangle",
    "redpajama-v2": "data_dir: release, snapshots: [2023-06], languages: [en]",
    "text": "data_files: texts/*.jsonl.gz, text_field: content",
    "warc": "data_files: crawl/*.warc.gz",
}
OUTPUT_FIELDS = {"composed": "{strategy: buckets, capacities: [2048, 4096]}", "parquet": "{by: language}"}


ABOUT = {
    "Stages": "A stage keeps, removes or edits documents. In a recipe it is an item of `stages`; in Python a crawl is "
    "piped into it: `crawl | lc.text.MinWords(50)`.",
    "Sources": "A source reads documents. A recipe names one; in Python, write `lc.open(NAME, field=value)`, or "
    '`load_dataset("longcrawl", NAME, field=value)` after `import longcrawl`.',
    "Outputs": "An output writes a dataset into the folder of a run. A recipe names one or several.",
}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each reference page."""
    from longcrawl.core.outputs import OUTPUTS
    from longcrawl.core.sources import SOURCES
    from longcrawl.core.stages import STAGES

    for title, registry in (("Stages", STAGES), ("Sources", SOURCES), ("Outputs", OUTPUTS)):
        yield f"reference/{title.lower()}.md", _kinds(registry, title)
    yield "reference/feeds.md", _feeds()
    yield "reference/recipes.md", _recipes()
    yield "reference/cli.md", _command_line()


def snippet(group: str, name: str) -> str:
    """Return the lines of a recipe that use a stage, source or output."""
    if group == "Stages":
        return f"stages:\n  - {name}: {STAGE_FIELDS[name]}" if name in STAGE_FIELDS else f"stages:\n  - {name}"
    if group == "Sources":
        return f"source: {{builder: {name}{f', {fields}' if (fields := SOURCE_FIELDS.get(name)) else ''}}}"
    return f"outputs:\n  {name}: {OUTPUT_FIELDS.get(name, '{}')}"


def _kinds(registry: Any, title: str) -> str:
    from longcrawl.core.registry import describe_fields, presets_of

    kinds = {name: registry.find(name) for name in registry}
    parts = [f"# {title}\n\n{ABOUT[title]} `longcrawl {title.lower()} NAME` prints the same text.", _index(kinds)]
    for name, kind in kinds.items():
        text, entries = describe(inspect.getdoc(kind) or "")
        parts += [f"## {name}", text, f"In a recipe:\n\n```yaml\n{snippet(title, name)}\n```"]
        parts += [f"In Python: `{public}`"] if (public := _public(kind)) else []
        parts += _fields(describe_fields(kind), entries)
        parts += _presets(presets_of(kind))
    return "\n\n".join(parts) + "\n"


def _index(kinds: Mapping[str, Any]) -> str:
    """Return a table of names and their first lines."""
    lines = ["| name | |", "| --- | --- |"]
    for name, kind in kinds.items():
        about = _plain((inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")).replace("|", "\\|")
        lines.append(f"| [`{name}`](#{name.lower()}) | {about} |")
    return "\n".join(lines)


def _public(kind: type) -> str | None:
    """Return the public name of a stage, such as ``lc.text.MinWords``."""
    import longcrawl as lc

    for package in ("text", "dedup", "tokens", "long"):
        if getattr(getattr(lc, package), kind.__name__, None) is kind:
            return f"lc.{package}.{kind.__name__}"
    return None


def _fields(fields: Iterable[tuple[str, str, str]], entries: Mapping[str, str]) -> list[str]:
    lines = [
        f"- **`{field}`** ({_code(takes)}, {'required' if default == 'must be given' else f'default `{default}`'})"
        + (f": {entries[field]}" if field in entries else "")
        for field, takes, default in fields
    ]
    return ["**Fields**", "\n".join(lines)] if lines else []


def _presets(presets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    values = {
        name: "`, `".join(f"{field}: {value}" for field, value in presets[name].items()) for name in sorted(presets)
    }
    lines = [f"- **`{name}`** sets `{fields}`" for name, fields in values.items()]
    return ["**Presets**, as in `{preset: NAME}`", "\n".join(lines)] if lines else []


def _code(takes: str) -> str:
    return takes if takes.startswith(("a ", "text", "true")) else f"`{takes}`"


def _feeds() -> str:
    import longcrawl as lc

    named = {name: getattr(lc.loading, name) for name in dir(lc.loading) if not name.startswith("_")}
    feeds = {name: each for name, each in named.items() if not isinstance(each, ModuleType)}
    about = "Feeds return batches to a trainer. [The guide](../feeds.md) shows which one to choose."
    parts = [f"# Feeds\n\n{about} All names are in `lc.loading`.", _index(feeds)]
    for name, feed in feeds.items():
        text, entries = describe(inspect.getdoc(feed) or "")
        parts += [f"## {name}", f"```python\n{_call(name, feed)}\n```", text]
        lines = [f"- **`{field}`**: {about}" for field, about in entries.items()]
        parts += ["**Fields**" if inspect.isclass(feed) else "**Arguments**", "\n".join(lines)] if lines else []
        methods = inspect.getmembers(feed, inspect.isfunction) if inspect.isclass(feed) else []
        lines = [
            f"- `{method}{_arguments(function)}`: {_plain(inspect.getdoc(function).partition(chr(10))[0])}"
            for method, function in methods
            if not method.startswith("_") and inspect.getdoc(function)
        ]
        parts += ["**Methods**", "\n".join(lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def _call(name: str, feed: Any) -> str:
    """Return how a feed is made, with an argument on each line if there are many."""
    arguments = [_argument_of(each) for each in inspect.signature(feed).parameters.values()]
    call = f"lc.loading.{name}({', '.join(arguments)})"
    return call if len(call) <= 100 else f"lc.loading.{name}(\n    " + ",\n    ".join(arguments) + ",\n)"


def _arguments(function: Any) -> str:
    names = [_argument_of(each) for each in inspect.signature(function).parameters.values() if each.name != "self"]
    return f"({', '.join(names)})"


def _argument_of(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return stars + parameter.name
    value = "…" if repr(parameter.default).startswith("<") else repr(parameter.default)
    return f"{parameter.name}={value}"


def describe(docstring: str) -> tuple[str, dict[str, str]]:
    """Return a docstring as Markdown, and its text about each argument or attribute."""
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
            text.append(SKIPPED.sub("", line))
        elif found := SECTION.fullmatch(line):
            section = found[1]
            text += ["", f"**{section}**", ""] if section not in ("Args", "Attributes") else [""]
        elif section in ("Args", "Attributes") and line.startswith("    "):
            if found := ENTRY.fullmatch(line):
                entry = found[1]
                entries[entry] = _plain(found[2])
            else:
                entries[entry] += f" {_plain(line.strip())}"
        elif section and line.startswith("    "):
            found = ENTRY.fullmatch(line) if section == "Raises" else None
            text.append(f"- `{found[1]}`: {_plain(found[2])}" if found else _plain(line.strip()))
        else:
            section = section if not line else ""
            text.append(_plain(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*text, "```"] if example else text)).strip(), entries


def _plain(line: str) -> str:
    marked = LITERAL.sub(r"`\1`", ROLE.sub(r"`\1`", line))
    return f"\n{marked}" if marked.startswith("* ") else marked


def _recipes() -> str:
    from importlib.resources import files

    import longcrawl as lc

    parts = ["# Recipes\n\n`longcrawl run NAME --out FOLDER` runs a recipe, `--set FIELD=VALUE` changes a field of it."]
    for name, about in lc.recipes().items():
        recipe = files("longcrawl").joinpath(f"recipes/{name}.yaml").read_text("utf-8")
        parts.append(f"## {name}\n\n{about}\n\n```yaml\n{recipe.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _command_line() -> str:
    import typer

    from longcrawl.cli.commands import app

    commands = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]  # a group
        inner = getattr(command, "commands", None)
        commands |= {f"{name} {each}": under for each, under in inner.items()} if inner else {name: command}
    lines = [
        f"| [`longcrawl {name}`](#{name.replace(' ', '-')}) | {(command.help or '').partition(chr(10))[0]} |"
        for name, command in commands.items()
    ]
    about = "`longcrawl COMMAND --help` prints the same text."
    parts = [f"# Command line\n\n{about}", "\n".join(["| command | |", "| --- | --- |", *lines])]
    parts += [_command(name, command) for name, command in commands.items()]
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
        lines.append(f"- `{names}`{' (required)' if each.required else ''}: {each.help or ''}{default}")
    example = (command.epilog or "").removeprefix("Example: ")
    blocks = [f"## {name}", command.help or "", f"```text\n{usage}\n```", "\n".join(lines)]
    blocks += [f"Example:\n\n```sh\n{example.replace(', or ', chr(10))}\n```"] if example else []
    return "\n\n".join(block for block in blocks if block)


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required or name.startswith("[") else f"[{name}]"
