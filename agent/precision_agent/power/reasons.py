"""Why there is no energy figure: one row a cause, its name for the result, its sentence for a person."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause; `name` stands in the result, `sentence` says what it means and what to do."""

    name: str
    sentence: str


NO_ENERGY_COUNTER = Reason("no_energy_counter", "The GPU or its driver has no energy counter (Volta or newer has one).")
NO_INSTANT_POWER = Reason(
    "no_instant_power", "The driver does not report instant power (field 186): drivers from R530 on do."
)
SENSOR_LOST = Reason("sensor_lost", "The sensor or the GPU stopped to answer during the run: look for Xid errors.")
NO_SAMPLER = Reason("no_sampler", "The process that samples power did not start or died: the agent's log says why.")
SAMPLE_GAP = Reason("sample_gap", "Samples are further apart than the bound: what happened between them is not known.")
COUNTER_RESET = Reason(
    "counter_reset", "The energy counter went back (wrap, or a driver that was reloaded): its difference is void."
)
COUNTER_DISAGREES = Reason(
    "counter_disagrees", "Energy counter and integrated power are apart by more than 2.5 %: one of them is wrong."
)
TOO_FEW_UPDATES = Reason("too_few_updates", "The sensor was renewed fewer than 60 times while the recipe was timed.")
TOO_SHORT = Reason("too_short", "The recipe was timed for less than 10 s: ask for more palindromes or longer segments.")
PHASE_LOCKED = Reason(
    "phase_locked", "The step's period is locked to the sensor's: it sees the same part of each step. Pause at random."
)
MODULE_SHARED = Reason(
    "module_shared", "A module's watts hold a GPU that was not measured, or one that was counted twice."
)
REST_UNKNOWN = Reason(
    "rest_unknown", "Steps were paused against phase lock, and what the GPU draws in a pause was not measured."
)
REST_ABOVE_LOAD = Reason(
    "rest_above_load", "The GPU drew no less at rest than in windows with steps: its pauses can't be taken off."
)
NO_TOKENS = Reason("no_tokens", "No token was trained in the windows: there is nothing to divide.")
IDLE_UNKNOWN = Reason("idle_unknown", "Idle power was not measured: there are gross figures only.")
IDLE_ABOVE_LOAD = Reason("idle_above_load", "Idle power is not below the power under load: it can't be subtracted.")
POWER_PART_MISSING = Reason(
    "power_part_missing", "A part of the step was timed but never replayed under the sensor: too few palindromes."
)
NO_POWER_SENSOR = Reason("no_power_sensor", "This device has no power sensor that is read: only GPUs have one.")

REASONS = tuple(value for value in list(globals().values()) if isinstance(value, Reason))
"""Every cause. What is not here is never told as one."""
