"""Libraries in C: each compiler, the cache, and what happens without them."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import ctoolchain
from ctoolchain import Compiler, CSource, Loaded, ToolchainError, build, compilers, load
from tests.engines import COMPILERS
from tests.faults import mentions, naming
from tests.needs import needs

TEXT = '#include "own.h"\nint twice(int value) { return FACTOR * value; }'
TWICE = CSource("twice", TEXT, {"own.h": "#define FACTOR 2"})
DECLARED = "int twice(int);"
BROKEN = Compiler("broken", ("/bin/false",))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of libraries, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache" / "softswitch"


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> Compiler:
    found: Compiler = request.param
    return found


def loaded(source: CSource, *given: Compiler) -> Loaded:
    return load(source, DECLARED, given)


def test_what_a_library_does_and_which_compiler_built_it(compiler: Compiler) -> None:
    found = loaded(TWICE, compiler)
    assert found.library.twice(21) == 42
    assert found.compiler is compiler


STACK = """
import sys
from cffi import FFI
FFI().dlopen(sys.argv[1])
print([line.split()[1] for line in open("/proc/self/maps") if line.endswith("[stack]\\n")])
"""


def test_a_library_makes_no_stack_executable(compiler: Compiler) -> None:
    """The C library either refuses a library that asks for it (from glibc 2.41 on), or makes the
    stack executable.
    """
    command = [sys.executable, "-c", STACK, str(build(TWICE, compiler))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['rw-p']\n"


def test_a_library_is_built_once_and_for_its_user_alone(compiler: Compiler, cache: Path) -> None:
    path = build(TWICE, compiler)
    made = path.stat()
    assert build(TWICE, compiler) == path
    assert path.stat().st_ino == made.st_ino
    assert list(cache.iterdir()) == [path]
    assert stat.S_IMODE(cache.stat().st_mode) == stat.S_IMODE(made.st_mode) == 0o700


def test_what_a_killed_process_left_is_removed_later(compiler: Compiler, cache: Path) -> None:
    path = build(TWICE, compiler)
    for name, age_s in (
        (".twice-old", 40),
        (".twice-new", 1),
        (".other-old", 40),
        (".held-old", 40),
    ):
        (cache / name).mkdir()
        (cache / name / "twice.c").write_text("half of it")
        (cache / name / "lock").touch()
        os.utime(cache / name, (time.time() - age_s,) * 2)
    with (cache / ".held-old" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build(TWICE, compiler)
    assert sorted(cache.iterdir()) == sorted([path, cache / ".twice-new", cache / ".held-old"])


def test_another_text_include_or_compiler_makes_another_library(compiler: Compiler) -> None:
    others = [
        CSource("twice", TEXT + "\n", TWICE.includes),
        CSource("twice", TEXT, {"own.h": "#define FACTOR 3"}),
    ]
    paths = {build(source, compiler) for source in [TWICE, *others]}
    paths.add(build(TWICE, Compiler("other", (*compiler.command, "-g"))))
    assert len(paths) == 4
    assert loaded(others[1], compiler).library.twice(2) == 6


TWICE_FOUR = f"""
import sys
from ctoolchain import CSource, compilers, load
[compiler] = [each for each in compilers() if each.name == sys.argv[1]]
source = CSource("twice", {TEXT!r}, {TWICE.includes!r})
print(load(source, {DECLARED!r}, [compiler]).library.twice(4))
"""


def test_processes_may_build_the_same_at_once(compiler: Compiler) -> None:
    command = [sys.executable, "-c", TWICE_FOUR, compiler.name]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in started] == ["8\n"] * 4
    assert not any(process.returncode for process in started)


@needs("a C compiler")
@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_folder_that_others_may_write_to_is_not_used(
    cache: Path, tmp_path: Path, mode: int
) -> None:
    cache.mkdir(parents=True)
    cache.chmod(mode)
    assert build(TWICE, compilers()[0]).parent == tmp_path / f"softswitch-{os.geteuid()}"
    assert not list(cache.iterdir())


@needs("a C compiler")
def test_without_any_private_folder_the_reason_names_all(cache: Path, tmp_path: Path) -> None:
    cache.parent.write_text("a file")
    (tmp_path / f"softswitch-{os.geteuid()}").symlink_to(tmp_path)
    folders = ("cache/softswitch", f"softswitch-{os.geteuid()}", os.strerror(errno.ENOTDIR))
    with pytest.raises(ToolchainError, check=naming(*folders)):
        build(TWICE, compilers()[0])


def test_a_library_that_others_may_write_to_is_built_anew(compiler: Compiler) -> None:
    path = build(TWICE, compiler)
    path.write_text("not a library")
    path.chmod(0o722)
    assert loaded(TWICE, compiler).library.twice(1) == 2


def test_the_next_compiler_builds_what_the_first_one_cannot(
    compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    ctoolchain.say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert loaded(TWICE, BROKEN, compiler).compiler is compiler
        loaded(TWICE, BROKEN, compiler)
    (said,) = caplog.messages
    assert mentions(said, compiler.name, TWICE.name, "/bin/false -shared")


def test_an_error_in_the_text_is_told_in_one_line(compiler: Compiler, cache: Path) -> None:
    with pytest.raises(ToolchainError, check=naming("twice.c:1", "error")) as told:
        loaded(CSource("twice", "int twice(int value) { return value +; }"), compiler)
    assert "\n" not in str(told.value)
    assert not list(cache.iterdir())


def test_a_missing_compiler_and_a_file_that_is_no_library(compiler: Compiler) -> None:
    with pytest.raises(ToolchainError, check=naming("absent", os.strerror(errno.ENOENT))):
        build(TWICE, Compiler("absent", ("/nowhere/cc",)))
    library = build(TWICE, compiler)
    library.write_text("not a library")
    with pytest.raises(ToolchainError, check=naming(library.name)):
        loaded(TWICE, compiler)


def test_without_a_compiler_the_error_says_what_to_install() -> None:
    with pytest.raises(ToolchainError, check=naming("apt-get install gcc", "pip")):
        load(TWICE, DECLARED, ())


SLEEPER = """#!/bin/sh
sleep 60 &
echo $! > {pid}
echo begun
wait
"""


def sleeping(folder: Path) -> Compiler:
    """Return a compiler that starts another process, as gcc does, and works for a minute."""
    script = folder / "sleeper"
    script.write_text(SLEEPER.format(pid=folder / "pid"))
    script.chmod(0o700)
    return Compiler("sleeper", (str(script),))


def child_of(folder: Path) -> int:
    path = folder / "pid"
    until(lambda: path.exists() and bool(path.read_text()))
    return int(path.read_text())


def until(holds: Callable[[], bool], limit_s: float = 20) -> None:
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


BUILDING = f"""
import sys
from ctoolchain import Compiler, CSource, build
build(CSource("twice", {TEXT!r}, {TWICE.includes!r}), Compiler("sleeper", (sys.argv[1],)))
"""


def test_a_compiler_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """So do the processes that it has started, which no signal of its parent's death reaches."""
    compiler = sleeping(tmp_path)
    with subprocess.Popen([sys.executable, "-c", BUILDING, *compiler.command]) as process:
        pid = child_of(tmp_path)
        assert is_alive(pid)
        process.kill()
    until(lambda: not is_alive(pid))


def test_a_compiler_that_nobody_wants_any_longer_is_ended(tmp_path: Path) -> None:
    wanted = threading.Event()
    wanted.set()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            build(TWICE, sleeping(tmp_path), wanted.is_set)
        except ctoolchain.Unwanted as unwanted:
            raised.append(unwanted)

    thread = threading.Thread(target=run)
    thread.start()
    pid = child_of(tmp_path)
    wanted.clear()
    thread.join(20)
    assert raised
    until(lambda: not is_alive(pid))


def test_one_compiler_runs_at_a_time_and_the_background_gives_way(
    compiler: Compiler, tmp_path: Path
) -> None:
    wanted = threading.Event()
    wanted.set()
    sleeper = sleeping(tmp_path)

    def run() -> None:
        with suppress(ctoolchain.Unwanted):
            build(TWICE, sleeper, wanted.is_set)

    thread = threading.Thread(target=run)
    thread.start()
    first = child_of(tmp_path)
    (tmp_path / "pid").unlink()
    assert loaded(TWICE, compiler).library.twice(4) == 8
    until(lambda: not is_alive(first))
    second = child_of(tmp_path)  # it has begun anew
    assert second != first
    wanted.clear()
    thread.join(20)
    until(lambda: not is_alive(second))


def test_a_compiler_has_a_minute_and_two_gigabytes(tmp_path: Path) -> None:
    script = tmp_path / "limits"
    script.write_text("#!/bin/sh\necho $(ulimit -t) $(ulimit -v) $(ulimit -c)\nexit 3\n")
    script.chmod(0o700)
    with pytest.raises(ToolchainError, match="ended with status 3: 60 2097152 0"):
        build(TWICE, Compiler("limits", (str(script),)))
