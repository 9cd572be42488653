"""What the library refuses, in the words of the command line: `--truncate`, not `truncate=True`.

The library names its arguments as Python writes them. Those that are options of the command are named as options here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# What a sentence says of arguments that no command takes, and what it says instead.
SENTENCES = (
    (r"needs? (a|its) tokenizer: [\w.]+\(.*?tokenizer=tokenizer\)\.", r"needs \1 tokenizer, and the model has none."),
    (
        r"needs a processor: [\w.]+\(.*?processor=processor\)\.",
        "needs a processor, and the model has none. Give a directory that holds a preprocessor_config.json.",
    ),
    (r"; pass score= to say what is explained\.", "; in Python, hw.explain(…, score=…) can say what is explained."),
    (
        r": say which position is explained, target=headwater\.Token\(position, label\)\.",
        ". The command line explains no single position; in Python: hw.explain(…, target=hw.Token(position, label)).",
    ),
    (
        r"is a span: target=headwater\.Span\(start, end\)\.",
        "is a span, which the command line cannot name; in Python: hw.explain(…, target=hw.Span(start, end)).",
    ),
    (r"leave out prompts=\.", "leave out --prompt-a and --prompt-b."),
    (r"leave out normalise=False\.", "leave out --dot."),
)
PLAIN = r"(?:'[^']*'|\"[^\"]*\"|\[[^\]]*\]|[\w…./-]*[\w…])"


def in_options(message: str, options: Mapping[str, str]) -> str:
    """The message with the arguments that are options of the command named so: `options` has --at for "at"."""
    for pattern, instead in SENTENCES:
        message = re.sub(pattern, instead, message)
    for name, option in sorted(options.items(), key=lambda named: -len(named[0])):
        message = rename(message, name, option)
    return message


def rename(message: str, name: str, option: str) -> str:
    """`name=True` is the option alone, `name=value` the option and its value; one in brackets behind it is enough."""
    begins = rf"(?<![\w.\-(…]){re.escape(name)}="
    twice = rf"{begins}{PLAIN}? \(({re.escape(option)}[^)]*)\)"
    message = re.sub(twice, r"\1", message)
    message = re.sub(rf"{begins}True\b", option, message)
    message = re.sub(rf"{begins}({PLAIN})", lambda found: f"{option} {unquote(found[1])}", message)
    return re.sub(begins, option, message)


def unquote(value: str) -> str:
    """A value of Python as one types it: without quotes, a list with commas."""
    if value.startswith("["):
        return ",".join(part.strip().strip("'\"") for part in value[1:-1].split(","))
    return value.strip("'\"") if " " not in value else f'"{value[1:-1]}"'


def options_of(commands: Iterable[Any]) -> dict[str, str]:
    """The options of commands by their names in Python; of a group, those of all its commands."""
    found: dict[str, str] = {}
    for command in commands:
        for param in command.params:
            if param.param_type_name == "option":
                found[param.name] = max(param.opts, key=len)
        found |= options_of(getattr(command, "commands", {}).values())
    return found
