"""ResourceSlices of GPUs: what is kept of them, and what those of one node say together."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from precision_operator.core.observe.gpu_slices import PublishedGpus, SliceView, published, slice_view
from tests.support.node_objects import gpu_device, resource_slice, slice_object

PARTS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 3)).map(
        lambda row: resource_slice(
            "NVIDIA GB200", count=2, generation=row[0], first=2 * row[1], slices=row[2], name=f"s{row}"
        )
    ),
    unique=True,
    max_size=8,
)


@given(parts=PARTS, seed=st.randoms())
def test_slices_in_any_order_give_the_newest_generation_and_never_more(parts: list[SliceView], seed: Any) -> None:
    slices = published(parts)
    shuffled = list(parts)
    seed.shuffle(shuffled)
    again = published(shuffled)
    if slices is None or again is None:
        assert not parts
        return
    assert slices.gpus == again.gpus
    newest = [item for item in parts if item.generation == max(other.generation for other in parts)]
    assert set(slices.gpus) == {gpu for item in newest for gpu in item.gpus}
    if slices.incomplete is None:
        assert len({gpu.name for gpu in slices.gpus}) == len(slices.gpus) == 2 * newest[0].slices


def test_a_slice_of_another_driver_or_of_no_single_node_is_dropped() -> None:
    assert slice_view(slice_object(driver="dra.net")) is None
    everywhere = slice_object()
    everywhere["spec"]["allNodes"] = True
    del everywhere["spec"]["nodeName"]
    assert slice_view(everywhere) is None


def read(*devices: dict[str, Any]) -> PublishedGpus:
    view = slice_view(slice_object(devices=devices))
    assert view is not None
    found = published([view])
    assert found is not None
    return found


def test_uuids_are_those_that_a_claim_can_get_and_prove_something() -> None:
    tainted = gpu_device(1, taints=[{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoExecute"}])
    assert read(gpu_device(0), tainted).uuids == (gpu_device(0)["attributes"]["uuid"]["string"],)
    nameless = gpu_device(1)
    nameless["attributes"].pop("uuid")
    twin = gpu_device(1)
    twin["attributes"]["uuid"] = gpu_device(0)["attributes"]["uuid"]
    odd = gpu_device(1)
    odd["attributes"]["uuid"] = {"string": "GPU-1"}
    assert [read(gpu_device(0), other).uuids for other in (nameless, twin, odd)] == [(), (), ()]
