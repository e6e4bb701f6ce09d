"""The page of the command line, from the commands themselves."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from docs.generate.text import code, table

INTRODUCTION = """# Commands

Every command of `echelon` and `softswitch`, as `--help` shows it. The exit status is 0 on success, 1 if a command
failed, and 2 for bad input. [The service](service.md#commands) explains the commands that operate it.
"""
Path = tuple[str, ...]
"""The words of a command, from the program on."""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for path, command in commands():
        parts += [
            f"{'##' if len(path) < 3 else '###'} {' '.join(path)}\n",
            *_echelon(path, command),
        ]
    for path, parser in tools():
        parts += [f"## {' '.join(path)}\n", *_softswitch(parser)]
    return "\n".join(parts)


def commands() -> Iterator[tuple[Path, Any]]:
    """Yield the words and the object of each command of `echelon`, groups before their members."""
    from typer.main import get_command

    from echelon.cli import app

    yield from _below(get_command(app), ("echelon",))


def tools() -> Iterator[tuple[Path, argparse.ArgumentParser]]:
    """Yield `softswitch` and the tools beside it."""
    from softswitch.cli import commands as tools_by_name

    for path, module in (
        (("softswitch",), "softswitch.cli.switch_command"),
        *((("softswitch", name), module) for name, module in tools_by_name().items()),
    ):
        tool: Any = importlib.import_module(module)
        # The width of the help follows the terminal otherwise.
        parser = argparse.ArgumentParser(
            prog=" ".join(path),
            description=tool.__doc__,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100),
        )
        tool.add_arguments(parser)
        yield path, parser


def _below(command: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, (*path, name))


def _echelon(path: Path, command: Any) -> Iterator[str]:
    shown = [one for one in command.params if not one.hidden and "--help" not in one.opts]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    words = [
        *path,
        *(["[OPTIONS]"] if len(shown) > len(arguments) else []),
        *map(_argument, arguments),
    ]
    yield (
        f"```text\n{' '.join(words)}{' COMMAND ...' if getattr(command, 'commands', None) else ''}\n```\n"
    )
    for paragraph in (command.help or "").split("\n\n"):
        label, colon, example = paragraph.partition("Example: ")
        yield (
            f"Example:\n\n```text\n{example.strip()}\n```\n"
            if colon and not label
            else f"{paragraph}\n"
        )
    yield table(
        ("argument", "meaning"), [(code(_argument(one)), one.help or "") for one in arguments]
    )
    yield table(
        ("option", "meaning", "default"),
        [_option(one) for one in shown if one.param_type_name == "option"],
    )
    yield table(
        ("command", "what it does"),
        [
            (
                f"[`{' '.join((*path, name))}`](#{'-'.join((*path, name))})",
                inner.get_short_help_str(limit=200),
            )
            for name, inner in getattr(command, "commands", {}).items()
        ],
    )


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("{}[]")
    name += "..." if argument.nargs != 1 else ""
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> tuple[str, str, str]:
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    names = ", ".join(code(name + value) for name in (*option.opts, *option.secondary_opts))
    default = "required" if option.required else _default(option)
    return names, option.help or "", default


def _default(option: Any) -> str:
    if (
        option.default in (None, False, (), "")
        or callable(option.default)
        or not option.show_default
    ):
        return ""
    return code(str(option.default))


def _softswitch(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"```text\n{parser.format_help().strip()}\n```\n"
