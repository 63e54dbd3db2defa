"""A Transformer Engine that is installed and can't be loaded: torch measures in its place, and the result says why."""

from pathlib import Path

import pytest

from precision_agent.backends.factory import CLASSES
from precision_agent.protocol import Refusal
from precision_agent.run.open import Wanted, open_node
from precision_agent.sampling.devices import Call
from precision_api.exchange.exits import BACKEND_UNAVAILABLE
from tests.support.result_objects import request

pytestmark = pytest.mark.torch
STAND_IN = ("tests.support.worker_backend", "WorkerBackend")
UNLOADABLE = 'raise OSError("libcudart.so.13: cannot open shared object file")\n'


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name which fails to load, as one for another CUDA does."""
    (tmp_path / "transformer_engine").mkdir()
    (tmp_path / "transformer_engine" / "__init__.py").write_text(UNLOADABLE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("broken")
def test_auto_falls_back_to_torch_and_quotes_the_error() -> None:
    places = {"transformer-engine": CLASSES["transformer-engine"], "torch": STAND_IN}
    opened = open_node(Wanted("auto", "cuda", places=places), request(gpus=1, product="H200"), lambda: None)
    try:
        assert opened.devices.all(Call("name")) == ("replay",), "the stand-in for torch"
        (note,) = opened.notes
        assert note.startswith("measured by torch-cuda: loading Transformer Engine: OSError: libcudart.so.13")
    finally:
        opened.close()


def test_transformer_engine_asked_for_by_name_is_refused_where_it_cannot_be_loaded() -> None:
    places = {"transformer-engine": ("tests.support.worker_backend", "Unloadable"), "torch": STAND_IN}
    wanted = Wanted("transformer-engine", "cuda", places=places)
    opened = open_node(wanted, request(gpus=1, product="H200"), lambda: None)
    try:
        with pytest.raises(Refusal, match=r"OSError: libcudart\.so\.13") as refused:
            opened.devices.machine()
        assert refused.value.exit == BACKEND_UNAVAILABLE
    finally:
        opened.close()
