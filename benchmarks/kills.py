"""Kills what writes files at random moments, and counts what is lost or unreadable afterwards.

    python benchmarks/kills.py               # a campaign, 200 times
    python benchmarks/kills.py push 100      # `zoo push` into a folder
    python benchmarks/kills.py measure 100   # `joulecast measure --out`, with its sampler
    python benchmarks/kills.py train 100     # `joulecast train` in place of an entry that is there
    python benchmarks/kills.py calibrate 100 # `joulecast calibrate` of a simulated board, until it has ended

Of a campaign: measurements that were reported as finished but are not in the journal, and those that are in it twice.
Of pushes: entries that had been pushed before and cannot be fetched, and indexes that cannot be read; the killed push
is repeated, and must then succeed. Of trainings: entries that are gone or cannot be read.
Of calibrations: measurements that were in the journal and are gone or twice, operations that the last run did not
measure, and files that cannot be read; each is repeated until it ends, and then killed while it writes its file again.
Of recordings: samples that had been on disk, and recordings that cannot be read.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from joulecast import Network, Operation
from joulecast.errors import JoulecastError

PUSH = """
import sys
from pathlib import Path
from joulecast.zoo.places import push
print(flush=True)
push(Path(sys.argv[1]), *sys.argv[2:])
"""


def killed(command: list[str], seconds: float) -> bool:
    """Whether a program ran for these seconds from its first line of output on, and was killed then."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # its imports are done
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False


def pushes(times: int) -> None:
    """Kill pushes of shipped entries under new names, and in place of an entry with other bytes."""
    from joulecast.system.resources import shipped
    from joulecast.zoo.places import fetch, index_of, open_source, push

    rng, entries = random.Random(0), sorted(shipped("zoo").glob("a30/*-inference"))
    with tempfile.TemporaryDirectory() as folder:
        zoo = Path(folder) / "zoo"
        push(entries[0], "a30/first", str(zoo))
        lost = unreadable = cut_off = 0
        for number in range(times):
            name, entry = rng.choice(["a30/first", f"a30/n{number}"]), entries[number % len(entries)]
            before = set(index_of(open_source(str(zoo))))
            command = [sys.executable, "-c", PUSH, str(entry), name, str(zoo)]
            cut_off += killed(command, rng.uniform(0.0, 0.1))
            try:
                entries_there = index_of(open_source(str(zoo)))
                lost += len(before - set(entries_there))
                for each in entries_there:
                    fetch(open_source(str(zoo)), each)
            except JoulecastError as error:
                unreadable += 1
                print(error)
            push(entry, name, str(zoo))
            lost += len((before | {name}) - set(index_of(open_source(str(zoo)))))
        print(f"{times} pushes, {cut_off} killed: {lost} entries lost, {unreadable} times an entry or index unreadable")


TRAIN = """
from joulecast.cli import main
from joulecast.zoo import files
write = files.put_in_place
def put_in_place(*given):
    print(flush=True)
    return write(*given)
files.put_in_place = put_in_place
main()
"""


def trainings(times: int) -> int:
    """Kill `joulecast train` while it writes an entry over the one of the training before; how many were lost."""
    from joulecast.datasets import Card, Dataset, Measurement, save
    from joulecast.zoo.files import StoredEntry

    rng = random.Random(0)
    operations = [Operation("relu", [(n, 64)]) for n in range(1, 4000, 40)]
    times_s = [2e-5 + 1e-11 * each.bytes_read for each in operations]
    measured = [
        Measurement(each, time_s, 100.0, 100.0 * time_s, method="forward")
        for each, time_s in zip(operations, times_s, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        dataset, zoo = Path(folder) / "a30", Path(folder) / "zoo"
        save(Dataset(Card("NVIDIA A30", None, "made up", "none", {"forward": "made up"}), tuple(measured)), dataset)
        recipe = Path(folder) / "small.toml"
        recipe.write_text('predictor = "forest"\ntrees = 2\nfolds = 2\n')
        command = [sys.executable, "-c", TRAIN, "train", "--dataset", str(dataset), "--recipe", str(recipe)]
        command += ["--mode", "inference", "--no-track", "--zoo", str(zoo)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (entry,) = (path.parent for path in zoo.glob("*/*/manifest.json"))
        lost = cut_off = 0
        for _ in range(times):
            cut_off += killed(command, rng.uniform(0.0, 0.01))
            try:
                StoredEntry.of(entry)
            except JoulecastError as error:
                lost += 1
                print(error)
        print(f"{times} trainings, {cut_off} killed while they wrote: {lost} entries lost or unreadable")
    return lost


def recordings(times: int) -> None:
    """Kill the measuring command and its sampler together, which leaves what had been synced."""
    from joulecast.metering.recording import read_recording

    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        lost = unreadable = samples = 0
        for number in range(times):
            out = Path(folder) / f"{number}.jsonl"
            command = [sys.executable, "-m", "joulecast", "measure", "--devices", "ram", "--interval", "0.01"]
            process = subprocess.Popen(
                [*command, "--out", str(out), "--", "sleep", "60"], stderr=subprocess.DEVNULL, start_new_session=True
            )
            wait_until = time.monotonic() + 60
            while not (out.exists() and out.read_bytes().count(b"\n") > 1) and time.monotonic() < wait_until:
                time.sleep(0.05)
            time.sleep(rng.uniform(0.0, 1.5))
            on_disk = out.read_bytes()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            try:
                recording = read_recording(out)
                lost += not out.read_bytes().startswith(on_disk)
                samples += len(recording.samples["ram"])
            except JoulecastError as error:
                unreadable += 1
                print(error)
        print(f"{times} recordings killed, {samples} samples: {lost} lost bytes on disk, {unreadable} unreadable")


def campaigns(times: int) -> None:
    """Kill a campaign and resume it."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        out, campaign, network = (Path(folder) / name for name in ("out", "campaign.toml", "network.json"))
        # More operations than can be finished between the kills.
        Network.of([(Operation("relu", [(n, 8)]), 1) for n in range(1, 100 * times)]).save(network)
        campaign.write_text(f'seconds = 0.001\n[[network]]\nmodel = "{network}"\n')
        command = [
            sys.executable,
            "-m",
            "joulecast.profiling",
            str(campaign),
            "--out",
            str(out),
            "--device",
            "cpu",
            "--resume",
        ]
        lost = unreadable = reported = 0
        for _ in range(times):
            process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            heard, wanted = b"", rng.randint(1, 8)
            while heard.count(b"left,") < wanted and (byte := process.stderr.read(1)):
                heard += byte
            process.send_signal(signal.SIGKILL)
            process.communicate()
            reported = max([reported, *(int(p.split(b"/")[0]) for p in heard.split(b"\r")[1:] if b"left," in p)])
            data = (out / "journal.jsonl").read_bytes()
            whole = data[: data.rfind(b"\n") + 1].splitlines()[1:]
            try:
                keys = [json.loads(line)["key"] for line in whole]
            except ValueError:
                unreadable += 1
                continue
            lost += max(0, reported - len(keys))
        twice = len(keys) - len(set(keys))
        print(f"{times} kills, {len(keys)} finished: {lost} lost, {twice} twice, {unreadable} unreadable journals")


def calibrations(times: int) -> int:
    """Kill calibrations and repeat them until they have ended; how much was lost.

    The CPU is measured in place of a GPU, for milliseconds: what counts is the course of events.
    """
    from joulecast.cli import machine
    from joulecast.hardware import find_gpu
    from joulecast.predictors.board.profile import find_profile
    from joulecast.profiling import devices, summary, timing  # noqa: F401  (imported once, before each fork)
    from joulecast.queries import worth_measuring
    from joulecast.zoo import find_predictor

    modes = {"inference": 40, "training": 10}
    for mode in modes:
        find_predictor(find_gpu("H100 SXM"), mode)  # which is kept
    chosen = {mode: [Operation("relu", [(n, 64)], mode=mode) for n in range(1, 1 + modes[mode])] for mode in modes}
    machine._name_of = lambda device, gpu: "H100 SXM"
    machine._SECONDS = 0.002
    worth_measuring.worth_measuring = lambda predictors, count: chosen
    summary.write_summary = lambda journal, folder: folder  # whose pictures take seconds

    def begin(out: Path) -> int:
        """Calibrate in a process that has everything imported, and return its number."""
        if process := os.fork():
            return process
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            machine.calibrate(out=out, device="cpu")
        finally:
            os._exit(0)

    def killed_after(out: Path, seconds: float) -> bool:
        """Whether a calibration still ran after these seconds, and was killed then."""
        process = begin(out)
        time.sleep(seconds)
        ended, _ = os.waitpid(process, os.WNOHANG)
        if not ended:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        return not ended

    def measured(out: Path) -> list[str]:
        """What is whole in the journals."""
        journals = sorted(out.with_name(f"{out.stem}-measurements").glob("*/journal.jsonl"))
        lines = [line for each in journals for line in each.read_bytes().splitlines(keepends=True)]
        records = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [json.dumps(record["operation"]) for record in records if "operation" in record]

    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        lost = twice = unreadable = killed = number = 0
        whole = Path(folder) / "whole.json"
        began_s = time.monotonic()
        os.waitpid(begin(whole), 0)
        whole_s = time.monotonic() - began_s
        while killed < times:
            out, before = Path(folder) / f"{number}.json", set()
            number += 1
            while not out.exists():
                killed += killed_after(out, rng.uniform(0.0, 0.7 * whole_s))
                journalled = measured(out)
                lost += len(before - set(journalled))
                twice += len(journalled) - len(set(journalled))
                before = set(journalled)
            lost += sum(modes.values()) - len(before)
            killed += killed_after(out, rng.uniform(0.0, 0.3 * whole_s))  # while it writes its file again, or before
            try:
                find_profile(out)
            except JoulecastError as error:
                unreadable += 1
                print(error)
        print(
            f"{number} calibrations, {killed} times killed: {lost} measurements lost, {twice} twice, "
            f"{unreadable} files unreadable"
        )
    return lost + twice + unreadable


if __name__ == "__main__":
    KINDS = {
        "campaign": campaigns,
        "push": pushes,
        "measure": recordings,
        "train": trainings,
        "calibrate": calibrations,
    }
    words = sys.argv[1:]
    kill = KINDS[words.pop(0)] if words and words[0] in KINDS else campaigns
    kill(int(words[0]) if words else 200)
