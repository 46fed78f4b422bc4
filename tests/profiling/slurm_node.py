"""A Slurm cluster of this machine alone, with simulated GPUs, as a service of the tests. It needs root."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import until

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo")

# No credentials are checked (auth/none), because nobody else is on this cluster.
SETTINGS = """
ClusterName=test
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=1
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
GresTypes=gpu
NodeName={host} CPUs=8 RealMemory=8000 Gres=gpu:2
PartitionName=gpus Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def is_possible() -> bool:
    """Whether Slurm is installed here, and this process may run it."""
    return all(map(shutil.which, PROGRAMS)) and os.geteuid() == 0


@contextmanager
def slurm_node(folder: Path) -> Iterator[Path]:
    """Start it, and return its configuration, which $SLURM_CONF has to name."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        SETTINGS.format(host=socket.gethostname().split(".")[0], ports=free_ports(), folder=folder)
    )
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    with (folder / "slurm.log").open("w") as log:
        daemons = [
            subprocess.Popen([shutil.which(name), "-D"], env=environment, stdout=log, stderr=log)
            for name in ("slurmctld", "slurmd")
        ]
        try:
            states = ["sinfo", "--noheader", "--format=%T"]
            until(lambda: "idle" in subprocess.run(states, env=environment, capture_output=True, text=True).stdout)
            yield configuration
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait()


def free_ports() -> list[int]:
    """Two ports that nobody listens on."""
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("", 0))
        return [each.getsockname()[1] for each in (first, second)]
