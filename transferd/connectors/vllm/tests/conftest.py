import logging

import pytest
from transferd import Transferd

from surehand_vllm import wire
from surehand_vllm.daemon import Daemon, attach_message
from surehand_vllm.duties import Duties
from surehand_vllm.layout import Cache, Form, Layer, description, fingerprint
from surehand_vllm.memory import FlagPage, memfd
from surehand_vllm.sources import Sources
from surehand_vllm.steps import Steps
from surehand_vllm.targets import Targets

LOG = logging.getLogger("test")
BLOCK = 64
CACHES = [Cache("kv0", 2, 1, 1, "int8", "hnd", "as the test says")]
FORM = Form("r", fingerprint(16, CACHES), 16, ("kv0",), ((Layer(0, BLOCK, BLOCK), Layer(64 * BLOCK, BLOCK, BLOCK)),), described=description(16, CACHES))


class Told:
    """A front that remembers what it was told."""

    def __init__(self):
        self.words = []

    def tell(self, **body):
        self.words.append(wire.ConnectorMessage(**body))

    def of(self, kind):
        return [getattr(m, kind) for m in self.words if m.HasField(kind)]


class Rig:
    """The scheduler's side without vLLM, beside a transferd of the test's."""

    def __init__(self, tmp_path):
        self.transferd = Transferd(tmp_path / "td.sock")
        self.segment = bytearray(128 * BLOCK)
        self.flags = FlagPage(4)
        hello = attach_message("e", len(self.segment), 4, FORM)
        self.daemon = Daemon(self.transferd.path, hello, [memfd("seg", 128 * BLOCK), self.flags.fd], self.flags, self.event, LOG)
        self.duties, self.steps, self.front = Duties(self.daemon.attached, LOG), Steps(), Told()
        common = (self.daemon, self.duties, self.steps, self.front, FORM)
        self.targets = Targets(*common, LOG)
        self.sources = Sources(*common, memoryview(self.segment), LOG, serial_below=40)
        self.events = []
        self.daemon.start(5)
        self.duties.start()
        self.attach = self.transferd.next().attach

    def event(self, e):
        self.events.append(e)
        if e.key is not None:
            (self.sources if e.source else self.targets).event(e)

    def show(self, slot, key):
        """What transferd's commit does to the flag page."""
        self.flags._map[slot * 512 : slot * 512 + 16] = FlagPage._HEAD.pack(2, key.epoch, key.nonce)

    def close(self):
        self.daemon.close()
        self.duties.close()
        self.transferd.die()


@pytest.fixture
def rig(tmp_path):
    r = Rig(tmp_path)
    yield r
    r.close()
