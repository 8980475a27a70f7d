"""A notebook as a page: its text, code and outputs."""

import base64
import json
import re
from pathlib import Path
from typing import Any

STYLE = re.compile(r"<style[^>]*>.*?</style>", re.DOTALL)


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by name."""
    pictures: dict[str, bytes] = {}
    parts = []
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for place, output in enumerate(cell.get("outputs", ())):
            parts.append(_output(output, f"{path.stem}-{number}-{place}", pictures))
    parts.insert(1, f"These are the cells and outputs of `notebooks/{path.name}`, which runs without a network.")
    return "\n\n".join(parts) + "\n", pictures


def _output(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
    if "image/png" in data:
        pictures[f"{name}.png"] = base64.b64decode(data["image/png"])
        return f"![Output of the cell]({name}.png)"
    if "image/svg+xml" in data:
        pictures[f"{name}.svg"] = data["image/svg+xml"].encode()
        return f"![Output of the cell]({name}.svg)"
    if "text/html" in data:
        lines = (line.strip() for line in STYLE.sub("", data["text/html"]).splitlines())
        return f'<div class="cell-output">{" ".join(line for line in lines if line)}</div>'
    if "text/markdown" in data:
        return "\n".join(f"> {line}" for line in data["text/markdown"].replace("\n#", "\n###").splitlines())
    return f"```text\n{data.get('text/plain') or ''.join(output.get('text', ''))}\n```"
