"""A process that has imported everything and forks a registry, or a client, at once: so that a test can kill many.

python zygote.py server ROOT      each line read forks a server; its pid and URL are printed
python zygote.py client           each line read is JSON; a forked child uploads a folder with huggingface_hub
"""

import json
import os
import signal
import sys
from pathlib import Path


def serve(root: Path) -> None:
    from kernels_neuron.hub import server, serving  # noqa: F401  # imported before the fork, used after it

    while sys.stdin.readline():
        child = os.fork()
        if child == 0:
            serving.serve(root, port=0, on_ready=lambda url, token: print(json.dumps([os.getpid(), url]), flush=True))
            os._exit(0)


def upload() -> None:
    import huggingface_hub

    while line := sys.stdin.readline():
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            api = huggingface_hub.HfApi(job["url"], token=job["token"])
            done = api.upload_folder(
                folder_path=job["folder"], repo_id=job["repo"], repo_type="kernel", revision=job["branch"]
            )
            print(json.dumps(["done", done.oid]), flush=True)
            os._exit(0)
        print(json.dumps(["pid", child]), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are nobody's to wait for
    serve(Path(sys.argv[2])) if sys.argv[1] == "server" else upload()
