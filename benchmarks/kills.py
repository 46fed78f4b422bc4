"""Kill a campaign 200 times at random moments: `python benchmarks/kills.py [times]`.

Counts measurements that were reported as finished but are not in the journal, and measurements that are in it twice.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from joulecast import Network, Operation


def main(times: int) -> None:
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
