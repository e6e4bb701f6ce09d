"""The module that `echelon capture` has Python import first, to observe what communicates.

`echelon capture` puts this directory before PYTHONPATH. A process that never imports
`torch.distributed` is left alone; in one that does, `init_process_group` then starts the observer.
Options of the command are environment variables, which launchers hand on. A `sitecustomize` of the
environment's own is imported, too.

`echelon run` does the same with the programs of a scenario, and has them report their iterations to
the run. Under `echelon run-job`, process groups ask for their classes.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_HERE = Path(__file__).parent
_MODULES = "echelon_torch"
_RECORDS, _REPORTS = "ECHELON_CAPTURE_OUT", "ECHELON_RUN_SOCKET"
_CLASSES = "ECHELON_CLASSES_SOCKET"
"""Variables of the environment: what is asked for."""
_WATCHED = "torch.distributed.distributed_c10d"


class _Finder:
    """A finder of modules that has `_WATCHED` changed once it has been loaded."""

    def find_spec(
        self,
        name: str,
        path: Any = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name != _WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                _change(module)

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def _change(module: Any) -> None:
    if _CLASSES in os.environ:
        _loaded("group_classes").install(module)
    if _RECORDS in os.environ or _REPORTS in os.environ:
        _observe_from_start(module)


def _observe_from_start(module: Any) -> None:
    start = module.init_process_group

    @functools.wraps(start)
    def init_process_group(*arguments: Any, **named: Any) -> Any:
        result = start(*arguments, **named)
        _observe()
        return result

    module.init_process_group = init_process_group


@functools.cache
def _observe() -> None:
    observer = _loaded("observer")
    if _REPORTS in os.environ:
        _loaded("reporting").report()
    else:
        observer.observe()


def _loaded(name: str) -> Any:
    """Return a module of `echelon_torch` by its file: a script's environment may lack it."""
    full = f"{_MODULES}.{name}"
    module = sys.modules.get(full)
    if module is None:
        spec = importlib.util.spec_from_file_location(full, _HERE.parent / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def _import_the_other() -> None:
    """Import the `sitecustomize` that this one hides."""
    elsewhere = [path for path in sys.path if Path(path or os.curdir).resolve() != _HERE.resolve()]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if not os.environ.keys().isdisjoint((_RECORDS, _REPORTS, _CLASSES)):
    sys.meta_path.insert(0, _Finder())
_import_the_other()
