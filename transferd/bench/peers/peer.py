"""One peer's data plane, measured as ours is: two processes of this host, the same
scattered blocks, read by the one from the other.

The first line of stdin is a JSON object: the blocks. "ready" answers it. Each line
"all" then reads every block, "one" a single 64 KiB block many times; the answer is
a JSON object. Both end with their stdin.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

WORD = 0x9E3779B97F4A7C15


def fill(memory):
    words = memory.view(np.uint64)
    words[:] = np.arange(words.size, dtype=np.uint64) * np.uint64(WORD)


def processor(pid):
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's clock of a process


class Nixl:
    """READs by index lists that were prepared once."""

    def __init__(self, name, memory, progress):
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=progress, backends=[]))
        self.agent.create_backend("UCX", {"ucx_error_handling_mode": "none"})
        self.at = memory.ctypes.data
        self.registered = self.agent.register_memory([(self.at, memory.nbytes, 0, "")], "DRAM")

    def tell(self):
        return {"at": self.at, "metadata": self.agent.get_agent_metadata().hex()}

    def tend(self):
        self.agent.get_new_notifs()

    def meet(self, other, blocks):
        self.peer = self.agent.add_remote_agent(bytes.fromhex(other["metadata"]))
        zeros = np.zeros(len(blocks["lengths"]), dtype=np.uint64)
        lengths = np.array(blocks["lengths"], dtype=np.uint64)
        near = np.stack([np.array(blocks["to"], dtype=np.uint64) + np.uint64(self.at), lengths, zeros], axis=1)
        far = np.stack([np.array(blocks["from"], dtype=np.uint64) + np.uint64(other["at"]), lengths, zeros], axis=1)
        self.near = self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", near, "DRAM")
        self.far = self.agent.prep_xfer_dlist(self.peer, far, "DRAM")

    def read(self, indices):
        handle = self.agent.make_prepped_xfer("READ", self.near, indices, self.far, indices)
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        if state != "DONE":
            raise RuntimeError(f"transfer is {state}")


class Mooncake:
    """Batched reads over TCP; longer batches are refused by its queues."""

    BATCH = 512

    def __init__(self, name, memory, progress):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("initialize failed")
        self.at = memory.ctypes.data
        if self.engine.register_memory(self.at, memory.nbytes) != 0:
            raise RuntimeError("register failed")

    def tell(self):
        return {"at": self.at, "session": f"127.0.0.1:{self.engine.get_rpc_port()}"}

    def tend(self):
        pass

    def meet(self, other, blocks):
        self.session = other["session"]
        self.near = [self.at + a for a in blocks["to"]]
        self.far = [other["at"] + a for a in blocks["from"]]
        self.lengths = blocks["lengths"]

    def read(self, indices):
        for first in range(0, len(indices), self.BATCH):
            some = indices[first : first + self.BATCH]
            near, far, lengths = ([v[i] for i in some] for v in (self.near, self.far, self.lengths))
            if self.engine.batch_transfer_sync_read(self.session, near, far, lengths) != 0:
                raise RuntimeError("transfer failed")


def build(kind, name, memory):
    if kind == "mooncake":
        return Mooncake(name, memory, False)
    return Nixl(name, memory, kind != "nixl-shared")


def hold(kind, size):
    """The source: it says where its memory is and lives until its stdin ends."""
    import select

    memory = np.zeros(size, dtype=np.uint8)
    fill(memory)
    peer = build(kind, "holder", memory)
    print(json.dumps(peer.tell()), flush=True)
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        peer.tend()


def main():
    kind = sys.argv[1]
    if len(sys.argv) > 2:
        return hold(kind, int(sys.argv[2]))
    blocks = json.loads(sys.stdin.readline())
    size = blocks["size"]
    holder = subprocess.Popen([sys.executable, __file__, kind, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        memory = np.zeros(size, dtype=np.uint8)
        peer = build(kind, "reader", memory)
        line = b""
        while not line.startswith(b"{"):  # a library may say something first
            line = holder.stdout.readline()
            if not line:
                raise RuntimeError("the holder ended")
        peer.meet(json.loads(line), blocks)
        everything = np.arange(len(blocks["lengths"]), dtype=np.int32)
        if kind == "mooncake":
            everything = everything.tolist()
        serve(peer, blocks, memory, everything, holder.pid)
    finally:
        holder.stdin.close()
        try:
            holder.wait(2)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()


def serve(peer, blocks, memory, everything, holder):
    check(peer, blocks, memory, everything)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "all":
            cpu, wall = processor(os.getpid()) + processor(holder), time.perf_counter()
            peer.read(everything)
            wall = time.perf_counter() - wall
            out = {"wire": wall, "cpu": processor(os.getpid()) + processor(holder) - cpu}
        else:
            single, took = everything[:1], []
            for _ in range(300):
                began = time.perf_counter()
                peer.read(single)
                took.append(time.perf_counter() - began)
            out = {"wire": statistics.median(took), "cpu": 0}
        print(json.dumps(out), flush=True)


def check(peer, blocks, memory, everything):
    """A lane that moves nothing is no lane."""
    peer.read(everything)
    source = np.zeros(memory.size, dtype=np.uint8)
    fill(source)
    step = max(len(everything) // 64, 1)
    for i in range(0, len(everything), step):
        n, a, b = blocks["lengths"][i], blocks["from"][i], blocks["to"][i]
        if not np.array_equal(source[a : a + n], memory[b : b + n]):
            raise RuntimeError(f"block {i} differs")


if __name__ == "__main__":
    main()
