"""Windows that a program opens and closes through a socket."""

import json
import socket
import threading

import pytest

from joulecast.errors import InputError
from joulecast.metering.command import Listener
from joulecast.metering.meter import Meter


def test_windows_are_opened_by_one_connection_and_closed_by_another(tmp_path):
    def send(text):
        with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as connection:
            connection.sendall(text.encode())
            connection.shutdown(socket.SHUT_WR)
            return [json.loads(line) for line in connection.makefile()]

    with Meter(("estimate",), interval_s=0.02, own_share=False) as meter:
        listener = Listener(meter, 0)
        serving = threading.Thread(target=listener.serve)
        serving.start()
        assert send("start epoch\n") == [{"window": "epoch"}]
        started, inner = send("start step\nstop\n")
        assert started == {"window": "epoch.step"}
        assert json.dumps([inner["window"], inner["calls"]]) == '["epoch.step", 1]'  # A whole number, also as text.
        (stopped,) = send("stop\n")
        assert stopped["source"] == "modelled"
        assert stopped["time_s"] > inner["time_s"] > 0
        assert stopped["energy_j"] > 0
        assert "no window is open" in send("stop\n")[0]["error"]
        assert "allowed: start NAME" in send("begin epoch\n")[0]["error"]
        with pytest.raises(InputError, match="cannot be received"):
            Listener(meter, listener.port)
        assert send("start left open\nend\n")[-1] == {"end": True}
        serving.join(10)
    assert meter.result().cpu_share is None  # The program whose windows these are is another process.
    assert {node.path for node in meter.result().tree().root.walk()} >= {"epoch", "epoch.step", "left open"}
