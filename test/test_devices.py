"""Device profiles and their recognition, from faked signals: no device is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch

from torch_lstsq_ext.devices import detect, generic, hygon, iluvatar, metax, nvidia, simulator
from torch_lstsq_ext.devices.detect import VENDOR_NAMES, VENDORS, Signals, collect_signals, facts_for, recognise
from torch_lstsq_ext.devices.facts import DEVICE_FACTS, MEASURED, Facts

PROFILES = [metax.FACTS, iluvatar.FACTS, hygon.FACTS, nvidia.FACTS, generic.FACTS, simulator.FACTS]
every_profile = pytest.mark.parametrize("facts", PROFILES, ids=lambda facts: facts.vendor)
every_vendor = pytest.mark.parametrize("vendor", VENDOR_NAMES)

# What each vendor's usual stack shows.
STACKS = {
    "metax": Signals(
        name="MetaX C550",
        torch_version="2.8.0+metax3.8.1.0",
        torch_metadata_version="2.8.0+metax3.8.1.0",
        cuda_version="11.6",
        maca_version="3.8.1.0",
        triton_backend="maca",
        warp_size=64,
        multiprocessors=104,
    ),
    "iluvatar": Signals(
        name="Iluvatar BI-V150",
        torch_version="2.7.1",
        torch_metadata_version="2.7.1+corex.4.4.0",
        cuda_version="10.2",
        has_corex=True,
        triton_backend="cuda",
        multiprocessors=16,
    ),
    "hygon": Signals(
        name="BW1000",
        torch_version="2.4.1",
        torch_metadata_version="2.9.0+das.opt1.dtk2604",
        hip_version="6.3.26",
        gcn_arch="gfx936:sramecc+:xnack-",
        has_hcu_version=True,
        triton_backend="hip",
        warp_size=64,
        multiprocessors=80,
    ),
    "nvidia": Signals(
        name="NVIDIA H200",
        torch_version="2.11.0+cu130",
        torch_metadata_version="2.11.0",
        cuda_version="13.0",
        triton_backend="cuda",
        warp_size=32,
        multiprocessors=132,
    ),
}


def fake_device(type_="cuda"):
    return SimpleNamespace(type=type_, index=0)


@pytest.fixture
def on(monkeypatch):
    """on(signals): the device that facts_for sees."""
    return lambda signals: monkeypatch.setattr(detect, "collect_signals", lambda device: signals)


# Facts --------------------------------------------------------------------------------------------------------------


@every_profile
def test_each_fact_has_a_source(facts):
    assert set(facts.sources) == set(DEVICE_FACTS)
    assert all(facts.sources.values())


def test_device_facts_are_all_fields_but_the_packages_own():
    own = {"vendor", "interpreted", "recognised", "fp64_error", "sources"}
    assert set(DEVICE_FACTS) == {field.name for field in fields(Facts)} - own


@every_profile
def test_budgets(facts):
    assert facts.shared_memory_budget * 2 == facts.shared_memory
    assert facts.max_warps * facts.warp_size == facts.threads_per_block
    assert facts.max_warps >= 4


@every_profile
def test_float64_error_is_there_exactly_where_float64_is_missing(facts):
    assert bool(facts.fp64_error) == (not facts.fp64)
    assert facts.fp64 or facts.fp64_dot is False
    assert facts.fp64 or ("float64" in facts.fp64_error and "float32" in facts.fp64_error)


@every_profile
def test_facts_are_hashable_and_sources_do_not_count(facts):
    other = replace(facts, sources={})
    assert other == facts
    assert hash(other) == hash(facts)
    assert replace(facts, shared_memory=facts.shared_memory + 1) != facts


@every_profile
def test_measured_limits_replace_declared_ones(facts):
    measured = facts.with_limits(shared_memory=101376, warp_size=16)
    assert (measured.shared_memory, measured.warp_size) == (101376, 16)
    assert measured.multiprocessors == facts.multiprocessors
    assert measured.sources["shared_memory"] == MEASURED
    assert measured.sources["multiprocessors"] == facts.sources["multiprocessors"]
    assert facts.with_limits() == facts


def test_known_values():
    """Facts whose loss would give wrong answers, not slow ones."""
    assert metax.FACTS.max_warps == 8
    assert metax.FACTS.fp64_dot is False and metax.FACTS.dot_stages == 1
    assert iluvatar.FACTS.fp64 is False and iluvatar.FACTS.broken_reduction_lengths == (512,)
    assert hygon.FACTS.fp64_dot is None and hygon.FACTS.shared_memory == 65536
    assert generic.FACTS.fp64_dot is False and not generic.FACTS.recognised
    assert simulator.FACTS.interpreted and simulator.FACTS.recognised


@pytest.mark.parametrize("profile", PROFILES, ids=lambda facts: f"profile_{facts.vendor}")
@pytest.mark.parametrize("real", PROFILES, ids=lambda facts: f"real_{facts.vendor}")
def test_restriction_takes_the_lesser_of_everything(profile, real):
    result = profile.restricted_to(real)
    assert result.vendor == profile.vendor
    assert result.warp_size == real.warp_size
    for bound in (profile, real):
        assert result.threads_per_block <= bound.threads_per_block
        assert result.shared_memory <= bound.shared_memory
        assert bound.private_bytes is None or result.private_bytes <= bound.private_bytes
        assert bound.multiprocessors is None or result.multiprocessors <= bound.multiprocessors
        assert bound.fp64 or (not result.fp64 and result.fp64_error)
        assert bound.fp64_dot is not False or result.fp64_dot is False
        assert bound.fp64_dot is not None or not result.fp64_dot
        assert bound.dot_stages is None or result.dot_stages <= bound.dot_stages
        assert set(result.broken_reduction_lengths) >= set(bound.broken_reduction_lengths)
    assert all(result.sources[name] for name in DEVICE_FACTS)
    if real.shared_memory < profile.shared_memory:
        assert result.sources["shared_memory"] == real.sources["shared_memory"]


def test_a_profile_restricted_to_itself_is_itself():
    for facts in PROFILES:
        assert facts.restricted_to(facts) == facts


# Recognition --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", STACKS)
def test_usual_stack(vendor):
    assert recognise(STACKS[vendor])[0] == vendor


ALONE = {
    "metax-version": ("metax", Signals(cuda_version="11.6", maca_version="3.8.1.0"), "3.8.1.0"),
    "metax-name": ("metax", Signals(cuda_version="11.6", name="MetaX C550"), "MetaX C550"),
    "metax-torch": ("metax", Signals(cuda_version="11.6", torch_version="2.8.0+metax3.8"), "+metax3.8"),
    "metax-metadata": (
        "metax",
        Signals(cuda_version="11.6", torch_version="2.8.0", torch_metadata_version="2.8.0+metax3.8"),
        "+metax3.8",
    ),
    "metax-triton-maca": ("metax", Signals(cuda_version="11.6", triton_backend="maca"), "maca"),
    "metax-triton-metax": ("metax", Signals(cuda_version="11.6", triton_backend="metax"), "metax"),
    "iluvatar-name": ("iluvatar", Signals(cuda_version="10.2", name="Iluvatar MR-V100"), "Iluvatar MR-V100"),
    "iluvatar-attribute": ("iluvatar", Signals(cuda_version="10.2", has_corex=True), "torch.corex"),
    "iluvatar-torch": ("iluvatar", Signals(cuda_version="10.2", torch_version="2.7.1+corex.4.4.0"), "+corex"),
    "iluvatar-metadata": (
        "iluvatar",
        Signals(cuda_version="10.2", torch_version="2.7.1", torch_metadata_version="2.7.1+corex.4.4.0"),
        "+corex",
    ),
    "iluvatar-triton": ("iluvatar", Signals(cuda_version="10.2", triton_backend="corex"), "corex"),
    **{
        f"hygon-{arch}": ("hygon", Signals(hip_version="6.3", gcn_arch=f"{arch}:sramecc+:xnack-"), arch)
        for arch in ("gfx906", "gfx926", "gfx928", "gfx936", "gfx938")
    },
    "hygon-name-K100": ("hygon", Signals(hip_version="6.3", name="K100_AI"), "K100_AI"),
    "hygon-name-BW": ("hygon", Signals(hip_version="6.3", name="BW1000"), "BW1000"),
    "hygon-attribute": ("hygon", Signals(hip_version="6.3", has_hcu_version=True), "__hcu_version__"),
    "hygon-torch": ("hygon", Signals(hip_version="6.3", torch_version="2.9.0+das.opt1.dtk2604"), "+das"),
    "hygon-metadata": (
        "hygon",
        Signals(hip_version="6.3", torch_version="2.4.1", torch_metadata_version="2.9.0+dtk2604"),
        "+dtk2604",
    ),
    "nvidia-torch": ("nvidia", Signals(cuda_version="13.0", torch_version="2.11.0+cu130"), "+cu130"),
    "nvidia-metadata": ("nvidia", Signals(cuda_version="13.0", torch_metadata_version="2.11.0+cu130"), "+cu130"),
}


@pytest.mark.parametrize(("vendor", "signals", "said"), ALONE.values(), ids=ALONE)
def test_each_signal_alone(vendor, signals, said):
    name, reason = recognise(signals)
    assert name == vendor
    assert said in reason


NVIDIA_NAMES = [
    "NVIDIA H200",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "NVIDIA GB200",
    "Tesla V100-SXM2-16GB",
    "GeForce RTX 2080 Ti",
    "Quadro RTX 8000",
    "TITAN V",
    "GRID T4-16Q",
    "A100-SXM4-40GB",
    "Orin",
]


@pytest.mark.parametrize("name", NVIDIA_NAMES, ids=lambda name: name.replace(" ", "_"))
def test_nvidia_names(name):
    assert recognise(Signals(cuda_version="12.4", torch_version="2.5.1", name=name))[0] == "nvidia"


UNKNOWN = {
    "MI200": Signals(hip_version="6.3", gcn_arch="gfx90a:sramecc+:xnack-", name="AMD Instinct MI250X"),
    "MI300": Signals(hip_version="6.3", gcn_arch="gfx942:sramecc+:xnack-", name="AMD Instinct MI300X"),
    "MI200-unnamed": Signals(hip_version="6.3", gcn_arch="gfx90a:sramecc+:xnack-", triton_backend="hip"),
    "MI300-unnamed": Signals(hip_version="6.3", gcn_arch="gfx942:sramecc+:xnack-", triton_backend="hip"),
    "MI60": Signals(hip_version="5.7", gcn_arch="gfx906:sramecc+:xnack-", name="AMD Instinct MI60"),
    "Radeon-VII": Signals(hip_version="5.7", gcn_arch="gfx906", name="AMD Radeon VII"),
    "Radeon": Signals(hip_version="6.3", gcn_arch="gfx1100", name="AMD Radeon RX 7900 XTX"),
    "rocm-build": Signals(hip_version="6.3", torch_version="2.9.0+rocm6.3", gcn_arch="gfx942"),
    "imitator": Signals(cuda_version="12.4", torch_version="2.6.0", name="P800", triton_backend="cuda"),
    "imitator-tagged": Signals(cuda_version="12.4", torch_version="2.6.0+cu124.other1", name="Other 1"),
    "imitator-wide-warp": Signals(cuda_version="12.4", torch_version="2.6.0+cu124", warp_size=64),
    "nothing": Signals(),
    "npu": Signals(device_type="npu", name="Ascend910B2", torch_version="2.7.1+cpu"),
    "npu-on-a-cuda-build": Signals(
        device_type="npu", name="Ascend910B2", torch_version="2.7.1+cu126", cuda_version="12.6"
    ),
    "xpu": Signals(device_type="xpu", name="Intel(R) Data Center GPU Max 1550", torch_version="2.9.0+xpu"),
}


@pytest.mark.parametrize("signals", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_devices_are_generic(signals):
    name, reason = recognise(signals)
    assert name == "generic"
    assert signals.device_type in reason


@pytest.mark.parametrize(
    ("vendor", "other"),
    [("metax", {"maca_version": "3.8"}), ("iluvatar", {"has_corex": True}), ("hygon", {"has_hcu_version": True})],
    ids=["metax", "iluvatar", "hygon"],
)
def test_another_vendors_mark_outweighs_nvidias_name(vendor, other):
    assert recognise(replace(STACKS["nvidia"], **other))[0] == vendor


def test_simulator_is_recognised():
    assert recognise(Signals(device_type="simulator"))[0] == "simulator"


def test_one_row_a_vendor():
    assert {name: module.FACTS.vendor for name, module in VENDORS.items()} == dict(zip(VENDORS, VENDORS))
    assert set(VENDOR_NAMES) == {"metax", "iluvatar", "hygon", "nvidia"}


# Signals of a real torch --------------------------------------------------------------------------------------------


@pytest.fixture
def bare_torch(monkeypatch):
    """A torch that shows no vendor, whatever this one is, and a device without properties."""
    for name in ("cuda", "hip", "maca"):
        monkeypatch.setattr(torch.version, name, None, raising=False)
    for name in ("corex", "__hcu_version__"):
        monkeypatch.delattr(torch, name, raising=False)
    monkeypatch.setattr(torch, "__version__", "2.7.1")
    monkeypatch.setattr(detect.importlib.metadata, "version", lambda package: "2.7.1")
    monkeypatch.setattr(detect, "_triton_backend", _fail)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "")
    return monkeypatch


def _fail(*args, **kwargs):
    raise RuntimeError("not here")


DEVICE_PROPERTIES = {
    "metax": {"name": "MetaX C550", "warp_size": 64},
    "iluvatar": {"name": "Iluvatar BI-V150"},
    "hygon": {"name": "K100_AI", "gcnArchName": "gfx928:sramecc+:xnack-", "warp_size": 64},
    "nvidia": {"name": "NVIDIA H200", "warp_size": 32, "multi_processor_count": 132},
}


@pytest.mark.parametrize("vendor", DEVICE_PROPERTIES)
def test_collects_device_properties(bare_torch, vendor):
    properties = DEVICE_PROPERTIES[vendor]
    bare_torch.setattr(torch.version, "cuda", "12.4")
    bare_torch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**properties))
    signals = collect_signals(torch.device("cuda:0"))
    assert signals.name == properties["name"]
    assert signals.gcn_arch == properties.get("gcnArchName", "")
    assert signals.warp_size == properties.get("warp_size")
    assert signals.multiprocessors == properties.get("multi_processor_count")
    assert recognise(signals)[0] == vendor


@pytest.mark.parametrize(
    ("capability", "rate"), [((9, 0), 0.5), ((8, 0), 0.5), ((8, 9), 1 / 64), ((12, 0), 1 / 64)], ids=str
)
def test_an_nvidia_cards_rate_of_float64(bare_torch, capability, rate):
    major, minor = capability
    properties = SimpleNamespace(**DEVICE_PROPERTIES["nvidia"], major=major, minor=minor)
    bare_torch.setattr(torch.version, "cuda", "12.4")
    bare_torch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    facts = facts_for(torch.device("cuda:0"))
    assert facts.fp64_rate == rate
    assert facts.wide_dot == (rate == 0.5)
    assert not facts_for(torch.device("cuda:0"), forced="metax").wide_dot


TORCH_MARKS = {
    "maca": ("metax", lambda patch: patch.setattr(torch.version, "maca", "3.8.1.0")),
    "corex": ("iluvatar", lambda patch: patch.setattr(torch, "corex", True, raising=False)),
    "hcu": ("hygon", lambda patch: patch.setattr(torch, "__hcu_version__", "25", raising=False)),
    "version": ("metax", lambda patch: patch.setattr(torch, "__version__", "2.8.0+metax3.8")),
    "metadata": (
        "iluvatar",
        lambda patch: patch.setattr(detect.importlib.metadata, "version", lambda package: "2.7.1+corex.4.4.0"),
    ),
    "triton": ("metax", lambda patch: patch.setattr(detect, "_triton_backend", lambda: "maca")),
}


@pytest.mark.parametrize(("vendor", "mark"), TORCH_MARKS.values(), ids=TORCH_MARKS)
def test_collects_the_marks_of_a_torch_build(bare_torch, vendor, mark):
    bare_torch.setattr(torch.version, "cuda", "10.2")
    mark(bare_torch)
    assert recognise(collect_signals(torch.device("cuda:0")))[0] == vendor


def test_no_attribute_is_required(bare_torch):
    for name in ("cuda", "hip", "maca"):
        bare_torch.delattr(torch.version, name)
    bare_torch.setattr(torch.cuda, "get_device_properties", _fail)
    bare_torch.setattr(torch.cuda, "get_device_name", _fail)
    bare_torch.setattr(detect.importlib.metadata, "version", _fail)
    assert collect_signals(torch.device("cuda:0")) == Signals(torch_version="2.7.1")


def test_privateuse1_module_is_asked(bare_torch):
    module = SimpleNamespace(get_device_name=lambda device: "Accelerator 1")
    bare_torch.setattr(torch, "accel1", module, raising=False)
    signals = collect_signals(fake_device("accel1"))
    assert (signals.device_type, signals.name) == ("accel1", "Accelerator 1")
    assert recognise(signals)[0] == "generic"


def test_device_type_without_a_module(bare_torch):
    assert collect_signals(fake_device("nowhere")).name == ""


def test_import_asks_nothing():
    code = """
import sys
import torch

def refuse(*args, **kwargs):
    raise AssertionError("the device was asked at import")

for name, value in list(vars(torch.cuda).items()):
    if callable(value) and not isinstance(value, type) and not name.startswith("__"):
        setattr(torch.cuda, name, refuse)
import torch_lstsq_ext.devices.detect
assert not [name for name in sys.modules if name.split(".")[0] == "triton"], "triton was imported"
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# facts_for ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", STACKS)
def test_recognised_device(on, vendor):
    on(STACKS[vendor])
    facts = facts_for(fake_device())
    assert facts == VENDORS[vendor].FACTS
    assert facts.recognised and not facts.interpreted


@pytest.mark.parametrize("vendor", STACKS)
def test_limits_are_those_measured(on, vendor):
    on(STACKS[vendor])
    limits = {"shared_memory": 101376, "multiprocessors": 20, "warp_size": 64}
    facts = facts_for(fake_device(), limits=limits)
    assert facts == replace(VENDORS[vendor].FACTS, **limits)


def test_missing_limits_keep_the_declared(on):
    on(replace(STACKS["iluvatar"], multiprocessors=None))
    assert facts_for(fake_device(), limits={"shared_memory": None, "warp_size": 0}) == iluvatar.FACTS


@pytest.mark.parametrize("warp_size", [32, 64])
def test_generic_takes_what_torch_measures(on, warp_size):
    on(Signals(device_type="accel1", warp_size=warp_size, multiprocessors=7))
    facts = facts_for(fake_device("accel1"))
    assert facts == replace(generic.FACTS, warp_size=warp_size, multiprocessors=7)
    assert not facts.recognised


@pytest.mark.parametrize("real", STACKS)
@every_vendor
@pytest.mark.parametrize("limits", [None, {"shared_memory": 40960, "warp_size": 16}], ids=["declared", "measured"])
def test_a_forced_profile_never_exceeds_the_device(on, vendor, real, limits):
    on(STACKS[real])
    facts, own = facts_for(fake_device(), forced=vendor, limits=limits), facts_for(fake_device(), limits=limits)
    profile = VENDORS[vendor].FACTS
    assert facts.vendor == vendor
    assert facts.warp_size == own.warp_size
    assert facts.shared_memory == min(profile.shared_memory, own.shared_memory)
    assert facts.threads_per_block == min(profile.threads_per_block, own.threads_per_block)
    assert facts.max_warps * own.warp_size <= own.threads_per_block
    assert facts.fp64 == (profile.fp64 and own.fp64)
    assert facts.recognised and not facts.interpreted


@every_vendor
def test_a_profile_forced_on_a_large_nvidia_card_keeps_its_own_limits(on, vendor):
    on(STACKS["nvidia"])
    limits = {"shared_memory": 232448, "multiprocessors": 132, "warp_size": 32}
    facts = facts_for(fake_device(), forced=vendor, limits=limits)
    assert facts == replace(VENDORS[vendor].FACTS, warp_size=32)


@every_vendor
def test_a_profile_forced_on_an_unknown_device_is_bounded_by_measurements_only(on, vendor):
    on(Signals(device_type="accel1"))
    assert facts_for(fake_device("accel1"), forced=vendor) == VENDORS[vendor].FACTS
    facts = facts_for(fake_device("accel1"), forced=vendor, limits={"shared_memory": 40960, "warp_size": 32})
    assert facts == replace(VENDORS[vendor].FACTS, shared_memory=40960, warp_size=32)


def test_simulator():
    assert facts_for(fake_device("simulator")) == simulator.FACTS


@every_vendor
def test_a_profile_forced_on_the_simulator(vendor):
    facts = facts_for(fake_device("simulator"), forced=vendor)
    assert facts == replace(VENDORS[vendor].FACTS, interpreted=True, recognised=True)


@pytest.mark.parametrize("forced", ["generic", "simulator", "amd", ""])
def test_only_vendors_can_be_forced(forced):
    with pytest.raises(ValueError, match="metax, iluvatar, hygon, nvidia"):
        facts_for(fake_device("simulator"), forced=forced)
