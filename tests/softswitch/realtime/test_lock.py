"""The lock of the data plane: order, reentrancy, time-outs, conditions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from softswitch.realtime import HandoverLock

SOON_S = 30


def acquired_elsewhere(lock: HandoverLock) -> bool:
    """Return whether another thread gets the lock at once."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lock.acquire, blocking=False).result(SOON_S)


def test_a_thread_that_takes_it_again_at_once_keeps_nobody_out(
    eventually: Callable[[Callable[[], bool], str], None],
) -> None:
    lock = HandoverLock()
    order: list[int] = []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    lock.acquire()
    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=take, args=(number,)))
        threads[-1].start()
        eventually(lambda: lock.waiting == len(threads), "the thread waits")
    lock.yield_()
    # All that had waited went first, in their order; only then did this thread have it again.
    assert order == [0, 1, 2, 3, 4]
    assert not lock.wanted
    lock.release()
    for thread in threads:
        thread.join()


def test_it_is_reentrant_and_belongs_to_its_thread() -> None:
    lock = HandoverLock()
    with lock, lock:
        seen: list[bool] = []
        other = threading.Thread(target=lambda: seen.append(lock.acquire(blocking=False)))
        other.start()
        other.join()
        assert seen == [False]
        # threading.Condition asks for this from Python 3.14 on.
        assert lock.locked()
    assert not lock.locked()
    assert lock.acquire(blocking=False)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()
    assert not lock.locked()


def test_who_stops_waiting_is_not_handed_it() -> None:
    lock = HandoverLock()
    with lock:
        seen: list[bool] = []
        other = threading.Thread(target=lambda: seen.append(lock.acquire(timeout=0.01)))
        other.start()
        other.join()
        assert seen == [False]
        assert not lock.wanted
    assert lock.acquire(timeout=0)


def test_a_condition_gives_it_up_while_it_waits() -> None:
    lock = HandoverLock()
    condition = threading.Condition(lock)
    done: list[str] = []

    def work() -> None:
        with condition:
            done.append("worked")
            condition.notify_all()

    with lock, condition:  # held twice: waiting gives up both
        thread = threading.Thread(target=work)
        thread.start()
        assert condition.wait_for(lambda: bool(done), SOON_S)
        assert not acquired_elsewhere(lock)
    thread.join()
    assert lock.acquire(blocking=False)


def test_many_threads_exclude_each_other() -> None:
    lock = HandoverLock()
    returns: list[None] = []
    lock.on_return = lambda: returns.append(None)
    inside = total = 0

    def work() -> None:
        nonlocal inside, total
        for _ in range(300):
            with lock:
                inside += 1
                assert inside == 1
                total += 1
                lock.yield_()
                inside -= 1

    def work_without_yielding() -> None:
        nonlocal total
        for _ in range(300):
            with lock:
                assert inside in (0, 1)  # somebody may have yielded inside
                total += 1

    failures: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                target()
            except BaseException as error:
                failures.append(error)

        return run

    threads = [threading.Thread(target=guarded(work_without_yielding)) for _ in range(3)]
    threads.append(threading.Thread(target=guarded(work)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert not failures
    assert total == 1200
    assert len(returns) >= 1200
