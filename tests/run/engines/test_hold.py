"""Leases of tasks and of folders: one owner at a time, and what becomes of the lease of one that is gone."""

import json
import multiprocessing
import os
import time

from longcrawl.run.engines import hold
from longcrawl.run.engines.hold import Heartbeat, Watched


def test_a_lease_is_of_one_until_it_is_given_back(tmp_path):
    one, other = Heartbeat(), Heartbeat()
    assert one.take(tmp_path / "lock")
    assert one.holds(tmp_path / "lock")
    assert not other.take(tmp_path / "lock")
    assert not other.holds(tmp_path / "lock")
    one.release(tmp_path / "lock")
    assert other.take(tmp_path / "lock")
    other.stop()
    assert not (tmp_path / "lock").exists()
    one.stop()


def test_a_lease_of_another_machine_is_taken_once_it_has_not_changed_for_long(tmp_path):
    heartbeat, lock = Heartbeat(), tmp_path / "lock"
    lock.write_text(json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
    watched = Watched(lock, stale=0.3)
    watched.remove_if_stale()
    assert not heartbeat.take(lock)
    time.sleep(0.2)
    os.utime(lock)
    watched.remove_if_stale()
    time.sleep(0.2)
    watched.remove_if_stale()
    assert lock.exists()
    time.sleep(0.2)
    watched.remove_if_stale()
    assert heartbeat.take(lock)
    heartbeat.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_of_a_process_that_has_ended_on_this_machine_is_taken_at_once(tmp_path):
    ended = multiprocessing.get_context("fork").Process(target=os.getpid)
    ended.start()
    lock = tmp_path / "lock"
    lock.write_text(json.dumps({"owner": "x", **hold._process(ended.pid)}))
    ended.join()
    Watched(lock).remove_if_stale()
    assert not lock.exists()
