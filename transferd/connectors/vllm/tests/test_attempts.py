"""What becomes of vLLM's blocks in each phase of an attempt, at P and at D."""

import threading
import time

import google_crc32c
import pytest
from conftest import BLOCK, FORM
from transferd import event

from surehand_vllm import wire
from surehand_vllm.wire import Key

KEY = Key("h", 1, 7)
TENANT = bytes(range(32))


def plan():
    m = wire.RequestPlan(lease_ms=1000, tenant=TENANT)
    m.plan.attempt.CopyFrom(KEY.message())
    return m


def until(what, within=5.0):
    end = time.monotonic() + within
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def opened():
    m = wire.DaemonMessage()
    m.target_opened.token.attempt.CopyFrom(KEY.message())
    m.target_opened.token.generation = 5
    return m


def refusal(code):
    m = wire.DaemonMessage()
    m.failure.code, m.failure.detail = code, "as the test says"
    return m


def reports(rig):
    return rig.steps.take(is_empty=False, is_holding=True)


def received(rig):
    out = []
    until(lambda: out.append(reports(rig)) or out[-1])
    return out[-1]


def park(rig, cached=0):
    rig.transferd.answers["open_target"] = opened()
    rig.targets.new("r", KEY, plan(), None)
    assert rig.targets.is_waiting("r")
    rig.targets.allocated("r", 40, 40 - cached, ([3, 9, 5, 6],))
    m = rig.transferd.next().open_target
    until(lambda: rig.front.of("target"))
    return m


def test_blocks_are_opened_as_the_target_and_the_prefix_is_held(rig):
    m = park(rig, cached=16)
    assert list(m.offsets) == [3 * BLOCK, 9 * BLOCK, 5 * BLOCK, 67 * BLOCK, 73 * BLOCK, 69 * BLOCK]
    assert list(m.held) == [0, 3] and m.shape.tokens == 40 and m.shape.groups[0].blocks == 3
    (told,) = rig.front.of("target")
    assert (told.prompt_tokens, told.cached_tokens, told.token.generation) == (40, 16, 5)
    assert not reports(rig), "it runs only once it is committed"


def test_a_commit_lets_it_run_and_its_end_frees_after_the_drain(rig):
    slot = park(rig).flag_slot
    rig.show(slot, KEY)
    rig.transferd.tell(**event(KEY, wire.TARGET_COMMITTED))
    got = received(rig)
    assert got.received == {"r"} and not got.failed and rig.front.of("committed")
    rig.targets.delivered({"r"})
    assert rig.targets.finished("r") is True, "vLLM keeps the blocks"
    assert rig.transferd.next().HasField("finish_target")
    assert not reports(rig)
    rig.transferd.tell(**event(KEY, wire.TARGET_ABORTED, drained=True))
    assert rig.transferd.next().freed.source is False
    assert received(rig).sent == {"r"} and rig.targets.count() == 0 and rig.front.of("freed")
    assert not rig.front.of("over"), "the answer tells how it ended"


def test_a_decode_that_transferd_ends_is_told_and_freed_when_vllm_has_stopped(rig):
    rig.show(park(rig).flag_slot, KEY)
    rig.transferd.tell(**event(KEY, wire.TARGET_COMMITTED))
    received(rig)
    rig.targets.delivered({"r"})
    rig.transferd.tell(**event(KEY, wire.TARGET_ABORTED, drained=True, cause="lease_expired"))
    until(lambda: rig.front.of("over"))
    assert not reports(rig) and rig.transferd.asked.empty(), "it runs until the front has stopped it"
    assert rig.targets.finished("r") is True
    assert rig.transferd.next().HasField("freed")
    assert received(rig).sent == {"r"}


def test_a_commit_that_the_flag_page_does_not_show_never_runs(rig):
    park(rig)
    rig.transferd.tell(**event(KEY, wire.TARGET_COMMITTED))
    assert rig.transferd.next().HasField("finish_target")
    rig.transferd.tell(**event(KEY, wire.TARGET_ABORTED, drained=True))
    assert received(rig).failed == {"r"} and not rig.front.of("committed")


def test_a_closed_target_fails_only_after_the_drain(rig):
    park(rig)
    rig.transferd.tell(**event(KEY, wire.TARGET_CLOSED, cause="lease_expired"))
    until(lambda: rig.front.of("over"))
    assert not reports(rig) and rig.front.of("over")[0].cause == "lease_expired"
    rig.transferd.tell(**event(KEY, 0, drained=True))
    got = received(rig)
    assert got.received == {"r"} and got.failed == {"r"}
    rig.targets.delivered({"r"})
    assert rig.targets.finished("r") is False and rig.targets.count() == 0


@pytest.mark.parametrize("code", ["stale_incarnation", "capacity", "mismatch"])
def test_a_refused_target_fails_at_once_with_its_code(rig, code):
    rig.transferd.answers["open_target"] = refusal(code)
    rig.targets.new("r", KEY, plan(), None)
    rig.targets.allocated("r", 40, 40, ([3, 9, 5],))
    assert received(rig).failed == {"r"} and rig.front.of("target")[0].failure.code == code


def test_an_abort_before_blocks_were_allocated_leaves_nothing(rig):
    rig.targets.new("r", KEY, plan(), None)
    assert rig.targets.finished("r") is False and rig.targets.count() == 0
    assert rig.front.of("target")[0].failure.code == "cancelled"


def test_an_abort_while_parked_gives_the_blocks_back_after_the_drain(rig):
    park(rig)
    assert rig.targets.finished("r") is False, "vLLM keeps them until received"
    assert rig.transferd.next().HasField("finish_target")
    assert not reports(rig)
    rig.transferd.tell(**event(KEY, wire.TARGET_CLOSED, drained=True))
    got = received(rig)
    assert got.received == {"r"} and not got.sent and rig.targets.count() == 0


def test_an_abort_between_report_and_delivery_is_freed_once(rig):
    rig.show(park(rig).flag_slot, KEY)
    rig.transferd.tell(**event(KEY, wire.TARGET_COMMITTED))
    assert received(rig).received == {"r"}
    assert rig.targets.finished("r") is False, "vLLM frees them when it sees the report"
    rig.transferd.tell(**event(KEY, wire.TARGET_ABORTED, drained=True))
    until(lambda: rig.targets.count() == 0)
    assert not reports(rig)


def test_the_daemons_death_fails_what_is_parked_and_spares_what_is_committed(rig):
    park(rig)
    rig.transferd.die()
    rig.transferd.incarnation = 2
    rig.transferd.start()
    assert received(rig).failed == {"r"}
    assert rig.front.of("over")[0].cause == "stale_incarnation"


def test_a_committed_target_survives_the_daemons_death(rig):
    rig.show(park(rig).flag_slot, KEY)
    rig.transferd.tell(**event(KEY, wire.TARGET_COMMITTED))
    received(rig)
    rig.targets.delivered({"r"})
    rig.transferd.die()
    rig.transferd.incarnation, rig.transferd.adopted = 2, [KEY.message()]
    rig.transferd.start()
    assert rig.transferd.next().HasField("attach")
    assert rig.targets.finished("r") is True
    assert rig.transferd.next().HasField("finish_target")
    rig.transferd.tell(**event(KEY, wire.TARGET_ABORTED, drained=True))
    assert received(rig).sent == {"r"} and not rig.front.of("over")


def test_two_requests_of_one_attempt_do_not_share_a_target(rig):
    park(rig)
    rig.targets.new("s", KEY, plan(), None)
    rig.targets.allocated("s", 40, 40, ([10, 11, 12],))
    assert received(rig).failed == {"s"} and rig.targets.is_waiting("r")


def test_a_request_that_vllm_would_compute_itself_is_told_as_failed(rig):
    rig.targets.new("r", KEY, plan(), None)
    rig.targets.allocated("r", 40, 0, ([3, 9, 5],))
    assert rig.front.of("target")[0].failure.code == "engine" and rig.transferd.asked.empty()


def seal(rig):
    m = wire.DaemonMessage()
    m.source_opened.capability = b"cap"
    rig.transferd.answers["open_source"] = m
    rig.segment[3 * BLOCK : 4 * BLOCK] = b"x" * BLOCK
    rig.sources.new("r", KEY, plan())
    assert rig.sources.finished("r", True, 20, ([3, 4, 5],)) is True
    asked = [rig.transferd.next() for _ in range(3)]
    assert [m.WhichOneof("body") for m in asked] == ["open_source", "announce", "seal"]
    return asked


def test_a_finished_prefill_is_announced_with_its_digests_then_sealed(rig):
    opened, announced, _ = seal(rig)
    assert list(opened.open_source.blocks) == [3, 4] and opened.open_source.tenant == TENANT
    assert announced.announce.digests[0] == google_crc32c.value(b"x" * BLOCK)
    assert announced.announce.digests[1] == google_crc32c.value(bytes(BLOCK))
    until(lambda: rig.front.of("source"))
    assert rig.front.of("source")[0].capability == b"cap"


def test_ps_blocks_are_freed_only_after_the_drain(rig):
    seal(rig)
    rig.transferd.tell(**event(KEY, wire.SOURCE_CLOSED, source=True))
    until(lambda: rig.front.of("over"))
    assert not reports(rig)
    rig.transferd.tell(**event(KEY, 0, drained=True, source=True))
    assert rig.transferd.next().freed.source is True
    assert received(rig).sent == {"r"} and rig.sources.count() == 0


def test_an_aborted_prefill_opens_nothing(rig):
    rig.sources.new("r", KEY, plan())
    assert rig.sources.finished("r", False, 20, ([3, 4],)) is False
    assert rig.front.of("source")[0].failure.code == "cancelled" and rig.transferd.asked.empty()


def test_a_dropped_source_is_closed_and_freed(rig):
    seal(rig)
    until(lambda: rig.front.of("source"))
    rig.sources.drop(KEY)
    m = rig.transferd.next()
    assert m.close_source.code == "cancelled"
    rig.transferd.tell(**event(KEY, wire.SOURCE_CLOSED, drained=True, source=True))
    assert received(rig).sent == {"r"}


def test_a_refused_source_frees_at_once(rig):
    rig.transferd.answers["open_source"] = refusal("stale_incarnation")
    rig.sources.new("r", KEY, plan())
    rig.sources.finished("r", True, 20, ([3, 4],))
    assert received(rig).sent == {"r"} and rig.front.of("source")[0].failure.code == "stale_incarnation"


def test_a_failed_seal_closes_the_source(rig):
    m = wire.DaemonMessage()
    m.source_opened.capability = b"cap"
    rig.transferd.answers.update(open_source=m, seal=refusal("integrity"))
    rig.sources.new("r", KEY, plan())
    rig.sources.finished("r", True, 20, ([3, 4],))
    asked = [rig.transferd.next() for _ in range(4)]
    assert asked[-1].close_source.code == "integrity" and rig.front.of("source")[0].failure.code == "integrity"
    assert not reports(rig)


def test_the_daemons_death_frees_ps_blocks(rig):
    seal(rig)
    until(lambda: rig.front.of("source"))
    rig.transferd.die()
    rig.transferd.incarnation = 2
    rig.transferd.start()
    assert received(rig).sent == {"r"}


class Request:
    """What is read of vLLM's request."""

    def __init__(self, prompt, computed=0):
        self.num_prompt_tokens, self.num_computed_tokens = prompt, computed


def early(rig, computed=0):
    """A prompt of 40 tokens whose end the next step computes."""
    m = wire.DaemonMessage()
    m.source_opened.capability = b"cap"
    rig.transferd.answers["open_source"] = m
    rig.sources.new("r", KEY, plan(), Request(40, computed))
    step = rig.sources.scheduled({"r": 40 - computed}, lambda r: ([3, 4, 5, 6],))
    assert step > 0
    m = rig.transferd.next()
    assert list(m.open_source.blocks) == [3, 4, 5]
    until(lambda: rig.front.of("opened"))
    return step


def test_a_source_is_opened_with_the_step_of_its_last_chunk(rig):
    request = Request(40)
    rig.sources.new("r", KEY, plan(), request)
    for computed, tokens in ((0, 16), (16, 16)):
        request.num_computed_tokens = computed
        assert rig.sources.scheduled({"r": tokens, "other": 1}, None) == 0
    assert rig.transferd.asked.empty()
    rig.sources.finished("r", False, 40, ([3],))
    early(rig, computed=32)
    (told,) = rig.front.of("opened")
    assert told.capability == b"cap" and told.prompt_tokens == 40


def test_a_layer_is_announced_once_it_is_written_and_no_other_piece(rig):
    step = early(rig, computed=32)
    for n, layer in enumerate((0, 1)):
        assert rig.transferd.asked.empty(), "nothing is announced before the worker's word"
        at = (64 * layer + 4) * BLOCK
        rig.segment[at : at + BLOCK] = b"y" * BLOCK
        rig.sources.wrote(step, layer)
        m = rig.transferd.next().announce
        assert list(m.pieces) == [3 * layer, 3 * layer + 1, 3 * layer + 2]
        assert m.digests[1] == google_crc32c.value(b"y" * BLOCK)
    rig.sources.wrote(step, 1)
    assert rig.sources.finished("r", True, 40, ([3, 4, 5],)) is True
    assert rig.transferd.next().WhichOneof("body") == "seal"
    until(lambda: rig.front.of("source"))
    assert not rig.front.of("source")[0].HasField("failure")


def test_what_the_worker_did_not_say_is_announced_before_the_seal(rig):
    step = early(rig)
    rig.sources.wrote(step, 1)
    assert list(rig.transferd.next().announce.pieces) == [3, 4, 5]
    rig.sources.wrote(step - 1, 0)
    rig.sources.finished("r", True, 40, ([3, 4, 5],))
    assert list(rig.transferd.next().announce.pieces) == [0, 1, 2]
    assert rig.transferd.next().WhichOneof("body") == "seal"


def test_an_abort_after_the_opening_keeps_the_blocks_until_the_drain(rig):
    step = early(rig)
    assert rig.sources.finished("r", False, 40, ([3, 4],)) is True
    assert rig.front.of("source")[0].failure.code == "cancelled"
    assert rig.transferd.next().close_source.code == "cancelled"
    rig.sources.wrote(step, 0)
    assert not reports(rig)
    rig.transferd.tell(**event(KEY, wire.SOURCE_CLOSED, drained=True, source=True))
    assert rig.transferd.next().freed.source is True
    assert received(rig).sent == {"r"} and rig.sources.count() == 0


def test_an_engine_that_preempts_what_is_read_waits_for_the_drain(rig):
    early(rig)
    waiting = threading.Thread(target=lambda: rig.sources.preempted("r"))
    waiting.start()
    assert rig.transferd.next().close_source.code == "engine"
    assert waiting.is_alive(), "the next step may write the blocks"
    rig.transferd.tell(**event(KEY, wire.SOURCE_CLOSED, drained=True, source=True))
    waiting.join(5)
    assert not waiting.is_alive() and rig.front.of("source")[0].failure.code == "engine"
    assert not reports(rig), "vLLM has the blocks already"
    assert rig.sources.finished("r", False, 40, ([],)) is None


def test_a_source_that_drains_while_it_is_computed_is_not_reported(rig):
    early(rig)
    rig.transferd.tell(**event(KEY, wire.SOURCE_CLOSED, drained=True, source=True, cause="lease_expired"))
    assert rig.transferd.next().freed.source is True
    until(lambda: rig.sources.count() == 0 and rig.front.of("freed"))
    assert not reports(rig), "an id that vLLM does not hold ends its engine"
    assert not rig.sources.finished("r", True, 40, ([3, 4, 5],))


def test_a_refused_opening_leaves_the_request_to_vllm(rig):
    rig.transferd.answers["open_source"] = refusal("stale_incarnation")
    rig.sources.new("r", KEY, plan(), Request(40))
    rig.sources.scheduled({"r": 40}, lambda r: ([3, 4, 5],))
    until(lambda: rig.front.of("source"))
    assert rig.front.of("source")[0].failure.code == "stale_incarnation" and not reports(rig)
    assert not rig.sources.finished("r", True, 40, ([3, 4, 5],))


def test_memory_and_flags_travel_beside_the_attach(rig):
    assert len(rig.transferd.fds) == 2


def test_the_attach_says_what_its_layout_stands_for(rig):
    assert rig.attach.layout == FORM.layout and rig.attach.described == FORM.described
    (cache,) = rig.attach.described.caches
    assert (cache.name, cache.layers, cache.kv_heads, cache.packing) == ("kv0", 2, 1, "packed") and list(rig.attach.described.heads) == [1]


def test_an_idle_step_waits_and_a_busy_one_does_not(rig):
    for _ in range(8):
        rig.steps.take(is_empty=True, is_holding=True)
    assert rig.steps.idle_total == 4
    for _ in range(8):
        rig.steps.take(is_empty=True, is_holding=False)
        rig.steps.take(is_empty=False, is_holding=True)
    assert rig.steps.idle_total == 4


def test_an_idle_engine_steps_ever_more_rarely_until_there_is_news(rig):
    def steps(seconds):
        before, end = rig.steps.idle_total, time.monotonic() + seconds
        while time.monotonic() < end:
            rig.steps.take(is_empty=True, is_holding=True)
        return rig.steps.idle_total - before

    assert steps(0.5) < 100, "a spin takes thousands"
    waiting = threading.Thread(target=lambda: rig.steps.take(is_empty=True, is_holding=True))
    waiting.start()
    rig.steps.send("r")
    waiting.join(5)
    assert not waiting.is_alive()
