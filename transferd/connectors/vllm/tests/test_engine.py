"""What a real vLLM writes, and when, against what is announced of it. Skipped where there is no vLLM."""

import base64
import mmap
import os
import time

import google_crc32c
import pytest
from transferd import Transferd, event

from surehand_vllm import wire
from surehand_vllm.wire import Key

MODEL = os.environ.get("SUREHAND_VLLM_MODEL")
pytestmark = pytest.mark.skipif(not MODEL, reason="SUREHAND_VLLM_MODEL names no folder")
LAYERS = 4
SENTENCE = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. "


class Engine:
    """A P in this process, beside a transferd of the test's."""

    def __init__(self, folder, chunk):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import EngineArgs, LLMEngine
        from vllm.config import KVTransferConfig

        self.transferd = Transferd(folder / "td.sock")
        m = wire.DaemonMessage()
        m.source_opened.capability = b"cap"
        self.transferd.answers["open_source"] = m
        self.engine = LLMEngine.from_engine_args(EngineArgs(
            model=MODEL, dtype="float32", enforce_eager=True, max_model_len=1024, max_num_seqs=8, max_num_batched_tokens=chunk,
            kv_cache_memory_bytes=32 << 20, disable_log_stats=True,
            kv_transfer_config=KVTransferConfig(
                kv_connector="SurehandConnector", kv_connector_module_path="surehand_vllm.connector", kv_role="kv_producer", engine_id="p",
                kv_load_failure_policy="fail", kv_connector_extra_config={
                    "transferd_socket": self.transferd.path, "front_socket": str(folder / "none.sock"), "serial_below": 0})))
        self.transferd.next()
        self.memory = mmap.mmap(self.transferd.fds[0], 0)

    def compute(self, prompts):
        """Computes prompts at once, and gives what transferd was told of each."""
        from vllm import SamplingParams

        told = {f"h{i}": [] for i in range(len(prompts))}
        for i, prompt in enumerate(prompts):
            plan = wire.RequestPlan(lease_ms=1000, role=wire.ROLE_DECODE - 1)
            plan.plan.attempt.CopyFrom(Key(f"h{i}", 1, 7).message())
            params = {"surehand": base64.b64encode(plan.SerializeToString()).decode()}
            self.engine.add_request(f"r{i}", prompt, SamplingParams(temperature=0, max_tokens=1, extra_args={"kv_transfer_params": params}))
        while self.engine.has_unfinished_requests():
            self.engine.step()
        end = time.monotonic() + 30
        while not all(any(m.HasField("seal") for m in ms) for ms in told.values()):
            assert time.monotonic() < end, told
            m = self.transferd.next()
            told[getattr(m, m.WhichOneof("body")).attempt.handoff if not m.HasField("open_source") else m.open_source.plan.attempt.handoff].append(m)
        return told

    def release(self, told):
        for h in told:
            self.transferd.tell(**event(Key(h, 1, 7), wire.SOURCE_CLOSED, drained=True, source=True))
        core, end = self.engine.engine_core.engine_core, time.monotonic() + 30
        while core.scheduler.has_requests() or core.scheduler.kv_cache_manager.usage > 0:
            assert time.monotonic() < end, "blocks are held"
            self.engine.step()
        while not self.transferd.asked.empty():
            self.transferd.asked.get()


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return Engine(tmp_path_factory.mktemp("e"), chunk=2048)


@pytest.mark.parametrize("prompts", [
    [SENTENCE * 1], [SENTENCE * 30], [f"{i}: " + SENTENCE * (1 + 4 * i) for i in range(6)],
    [SENTENCE * 12 + f"and {i}" for i in range(6)],  # one computes what the others share, some in the very same step
])
def test_what_is_announced_is_final_and_comes_layer_by_layer(engine, prompts):
    told = engine.compute(prompts)
    for h, ms in told.items():
        kinds = [m.WhichOneof("body") for m in ms]
        assert kinds[0] == "open_source" and kinds[-1] == "seal" and set(kinds[1:-1]) == {"announce"}, kinds
        assert len(kinds) - 2 == LAYERS, f"{h}: {kinds}"
        opened, announced = ms[0].open_source, {}
        for m in ms[1:-1]:
            for piece, digest in zip(m.announce.pieces, m.announce.digests):
                assert piece not in announced, f"{h}: piece {piece} twice"
                announced[piece] = digest
        assert sorted(announced) == list(range(len(opened.offsets)))
        size = opened.shape.groups[0].block_bytes
        for piece, digest in announced.items():
            at = opened.offsets[piece]
            assert google_crc32c.value(engine.memory[at : at + size]) == digest, f"{h}: piece {piece} was written after it was announced"
    engine.release(told)
