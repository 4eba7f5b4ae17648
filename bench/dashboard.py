"""What a dashboard costs: memory and time of a look, with many runs, and with browsers that never read.

    python bench/dashboard.py [RUNS] [EPOCHS] [BROWSERS]

Makes RUNS (500) runs of EPOCHS (1,000) epochs in a scratch directory, serves them as `siafu dashboard` does, and prints the
process's memory: at the start, when all runs were read, and with BROWSERS (60) pages open that never read their stream.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

_COMMAND = "from siafu.cli import main; main()"


def make_runs(directory: Path, runs: int, epochs: int) -> int:
    """Bytes of metrics that were written."""
    busy = dict.fromkeys(
        ("train T0", "train G1", "train T1", "train ∇G1", "train ∇T0", "update"), 0.00123456789
    )
    fields = {"train_loss": 0.123456789, "val_loss": 0.2, "train_accuracy": 0.95, "val_accuracy": 0.94}
    fields |= {"test_accuracy": 0.93, "seconds": 0.0123, "evaluate_seconds": 0.0045, "v": 2, "time": 1.7e9}
    lines = "".join(
        json.dumps({"epoch": epoch, **fields, "busy_seconds": busy}) + "\n" for epoch in range(1, epochs + 1)
    )
    for number in range(runs):
        run = directory / f"run-{number}"
        run.mkdir()
        (run / "config.json").write_text(
            json.dumps({"graph": {"name": "demo"}, "training": {"epochs": epochs}})
        )
        (run / "metrics.jsonl").write_text(lines)
    return runs * len(lines.encode())


def memory_mb(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def timed_get(address: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    with urlopen(address) as answer:
        body = answer.read()
    return time.perf_counter() - began, body


def stalled(port: int, run_id: str) -> socket.socket:
    """A browser that asks for a run's epochs and reads one byte of them."""
    browser = socket.socket()
    browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    browser.connect(("127.0.0.1", port))
    browser.sendall(f"GET /events/{run_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    browser.recv(1)
    return browser


def main() -> None:
    runs, epochs, browsers = (
        int(given) for given in (sys.argv[1:] + ["500", "1000", "60"][len(sys.argv) - 1 :])
    )
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        written = make_runs(Path(scratch), runs, epochs)
        command = [sys.executable, "-c", _COMMAND, "dashboard", scratch, "--port", "0"]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.terminate)
        assert process.stdout is not None
        address = process.stdout.readline().split(": ")[1].split()[0]
        urlopen(f"{address}assets/style.css").close()
        print(f"{runs} runs of {epochs} epochs, {written / 1e6:.0f} MB of metrics")
        print(f"memory at the start             {memory_mb(process):6.1f} MB")
        first, body = timed_get(f"{address}api/runs")
        began = time.perf_counter()
        while any(run["epoch"] < epochs for run in json.loads(body)["runs"]):
            _, body = timed_get(f"{address}api/runs")
        read = first + time.perf_counter() - began
        time.sleep(1)  # so that the next look is a new one
        again, _ = timed_get(f"{address}api/runs")
        print(
            f"the first look                  {first:6.2f} s; all is read after {read:.1f} s, a look then takes {again:.3f} s"
        )
        print(f"memory when all is read         {memory_mb(process):6.1f} MB")
        port, ids = (
            int(address.rstrip("/").rpartition(":")[2]),
            [run["id"] for run in json.loads(body)["runs"]],
        )
        for number in range(browsers):
            stack.enter_context(stalled(port, ids[number % len(ids)]))
        time.sleep(5)
        answered, _ = timed_get(f"{address}api/runs")
        print(
            f"{browsers} browsers that never read    {memory_mb(process):6.1f} MB; others are answered in {answered:.3f} s"
        )


if __name__ == "__main__":
    main()
