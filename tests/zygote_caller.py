"""Has a command run in a process that `tests.zygote` forks, and ends as it ends. Needs the standard library alone."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

PATIENCE_S = 600  # a busy machine is no failure
zygote = socket.socket(socket.AF_UNIX)
end = time.monotonic() + PATIENCE_S
while True:
    try:
        zygote.connect(str(Path(__file__).with_name("socket")))
        break
    except OSError:  # it is still importing
        if time.monotonic() > end:
            raise
        time.sleep(0.05)
command = {"argv": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ), "caller": os.getpid()}
socket.send_fds(zygote, [json.dumps(command).encode()], [0, 1, 2])
answers = zygote.makefile()
child = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda sent, _: os.kill(child, sent))
code = int(answers.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
