"""A GPU with round figures, so that physics can be worked out by hand."""

from joulecast.hardware.gpu import GPU, IdleCurve, VoltageCurve

ROUND = GPU(
    name="Round 1000",
    aliases=("Round",),
    architecture="Test",
    chip="T1",
    compute_capability="8.0",
    sms=10,
    boost_clock_mhz=2000,
    min_clock_mhz=500,
    max_clock_mhz=2500,
    memory_bytes=10**10,
    memory_bandwidth=1e11,
    memory_type="HBM2",
    inline_ecc=False,
    l2_bytes=10**6,
    power_limit_w=200.0,
    peak_flops={"fp32": 1e12, "tf32": 4e12, "fp16": 8e12, "bf16": 8e12},
    process="TSMC 7N",
    # 20 W at 500 MHz and below, 50 W at 2000 MHz and above: 40 W at 1500 MHz.
    idle_curve=IdleCurve((500.0, 2000.0), (20.0, 50.0)),
    idle_power_w=15.0,
    # 800 mV up to 1000 MHz, then 0.2 mV per MHz: 900 mV at 1500 MHz, 1000 mV at 2000 MHz.
    voltage=VoltageCurve(flat_mv=800.0, knee_mhz=1000.0, top_mhz=2000.0, top_mv=1000.0, bend=1.0),
)
