"""The frames, constants and fingerprints of the Go side, byte for byte."""

import json
import socket
from pathlib import Path

import google_crc32c
import pytest

from surehand_vllm import constants, layout, memory, wire

GOLDEN = json.loads((Path(__file__).parent / "golden" / "golden.json").read_text())


@pytest.mark.parametrize("frame", GOLDEN["frames"], ids=lambda f: f["name"])
def test_a_frame_is_read_and_written_as_the_daemon_does(frame):
    here, there = socket.socketpair()
    with here, there:
        there.sendall(bytes.fromhex(frame["hex"]))
        m = wire.receive(here, wire.message(frame["type"]))
        assert m.WhichOneof("body") is not None
        wire.send(here, m)
        here.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: there.recv(1 << 16), b"")).hex() == frame["hex"]


def test_no_golden_field_is_unknown_here():
    for frame in GOLDEN["frames"]:
        m = wire.message(frame["type"])()
        m.ParseFromString(bytes.fromhex(frame["hex"])[4:])
        before = m.ByteSize()
        m.DiscardUnknownFields()
        assert m.ByteSize() == before, frame["name"]


def test_only_a_visible_slot_of_this_very_attempt_is_visible():
    seen = 0
    for slot in GOLDEN["slots"]:
        b = bytes.fromhex(slot["hex"])
        assert len(b) == constants.SLOT_BYTES
        assert memory.is_visible(b, slot["epoch"], slot["nonce"]) == slot["visible"]
        assert not memory.is_visible(b, slot["epoch"], slot["nonce"] ^ 1)
        assert not memory.is_visible(b, slot["epoch"] + 1, slot["nonce"])
        seen += slot["visible"]
    assert seen == 1


def test_checksums_agree():
    for c in GOLDEN["checksums"]:
        assert google_crc32c.value(bytes.fromhex(c["hex"])) == c["value"]


def caches():
    return [
        layout.Cache(c["Name"], c["Layers"], c["KVHeads"], c["HeadDim"], c["DType"], c["Order"], c["Interior"])
        for c in GOLDEN["layout"]["Caches"]
    ]


def test_a_layout_has_the_same_fingerprint_on_both_sides():
    g = GOLDEN["layout"]
    assert layout.fingerprint(g["BlockTokens"], caches()).hex() == GOLDEN["fingerprint"]
    assert layout.fingerprint(g["BlockTokens"] * 2, caches()).hex() != GOLDEN["fingerprint"]


def test_a_layout_is_described_as_the_daemon_reads_it():
    m = layout.description(GOLDEN["layout"]["BlockTokens"], caches())
    assert m.SerializeToString(deterministic=True).hex() == GOLDEN["described"]


def test_a_prompt_has_the_same_shape_on_both_sides():
    form = layout.Form(
        "golden", bytes.fromhex(GOLDEN["fingerprint"]), 128, ("kv0",),
        (tuple(layout.Layer(i << 24, 65536, 65536) for i in range(4)),),
    )
    assert form.shape(300).SerializeToString(deterministic=True).hex() == GOLDEN["shape"]


def test_a_plan_comes_as_it_was_sent_and_a_broken_one_is_refused():
    plan = wire.request_plan({"surehand": GOLDEN["request_plan"]})
    assert (plan.plan.attempt.handoff, plan.plan.attempt.epoch, plan.plan.d.incarnation) == ("h-golden", 3, 1 << 60)
    assert plan.role == wire.ROLE_DECODE and plan.tenant[:3] == bytes([4, 5, 6]) and len(plan.tenant) == 32
    assert wire.request_plan(None) is None and wire.request_plan({"other": 1}) is None
    for broken in ("", "!", GOLDEN["request_plan"][:-8], 7, "AAAA"):
        with pytest.raises(wire.Refusal) as e:
            wire.request_plan({"surehand": broken})
        assert e.value.code == "invalid"


def test_the_stretches_of_all_layers_are_all_pieces():
    form = layout.Form("r", b"", 16, ("a", "b"), ((layout.Layer(0, 1, 1),) * 2, (layout.Layer(9, 1, 1),) * 3))
    blocks = ([1, 2, 3], [4, 5, 6])
    pieces = [p for layer in range(form.depth) for p in form.stretch(layer, blocks)]
    assert pieces == list(range(len(form.offsets(blocks))))
