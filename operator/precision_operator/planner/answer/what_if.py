"""Questions: one change of the inputs each, answered as the difference to the plan without it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from precision_api.facts.names import grouped
from precision_api.facts.plain_text import first_of, number_of, shortened
from precision_api.facts.recipes import RECIPE_NAMES, Recipe, recipe_text, risks_of
from precision_api.facts.schema import decimal
from precision_api.kinds.capacity_plan import MoreNodes, PlanSpec, WhatIf, WhatIfAnswer
from precision_operator.planner.answer.planning import PlanAnswer, answer, binding
from precision_operator.planner.answer.readable import readable_days, readable_dollars, readable_energy, readable_watts
from precision_operator.planner.inputs.fleet import Fleet
from precision_operator.planner.inputs.quantities import WATTS_PER_MEGAWATT, UnusableInput, require, unusable
from precision_operator.planner.inputs.terms import NO_PRICE, Terms
from precision_operator.planner.rates.candidate_pool import CandidatePool, may_use
from precision_operator.planner.rates.evidence import own_terms, pools
from precision_operator.planner.rates.size_law import NOT_KNOWN
from precision_operator.planner.rates.speed import sources
from precision_operator.planner.solving.conflict import clash_words
from precision_operator.planner.solving.former import Former, place_of
from precision_operator.planner.solving.schedule import JobSlot
from precision_operator.planner.solving.solve import Solution

NAMED = 8
"""Nodes that a sentence names."""
LONG = 1024
MOST_POOLS = 3
"""Pools of which the standard questions ask what more nodes are worth."""
NOTHING = 1e-6
"""Share of the first objective below which a change is none."""


@dataclass(frozen=True, slots=True)
class _Changed:
    fleet: Fleet
    terms: Terms
    what: str

    def said(self, more: str, **changes: Any) -> "_Changed":
        return replace(self, what=f"{self.what}; {more}" if self.what else more, **changes)


def what_ifs(spec: PlanSpec, fleet: Fleet, base: PlanAnswer, now: datetime) -> tuple[WhatIfAnswer, ...]:
    """One difference for each question; none where there is no base plan to compare with."""
    if base.asked is None or base.solution is None:
        return ()
    asked = spec.what_ifs if spec.what_ifs is not None else tuple(_standard(base))
    return tuple(_difference(question, fleet, base, base.asked, now) for question in asked)


def _standard(base: PlanAnswer) -> Iterable[WhatIf]:
    """Drain the slow nodes, cap power by 10 %, allow NVFP4, a rack more in each large pool: where it means anything."""
    assert base.solution is not None
    used = {slot.option.pool.name: slot.option.pool for slot in base.solution.slots}
    if any(pool.slow for pool in used.values()):
        yield WhatIf(name="drain-slow-nodes", drain_slow_nodes=True)
    if base.totals is not None and base.totals.peak_megawatts and base.terms and base.terms.limits.watts:
        yield WhatIf(name="power-minus-10-percent", power_percent=-10)
    recipes = {recipe for pool in base.pools for _, recipe in pool.samples} | {
        rate.recipe for pool in base.pools for rate in pool.terms.job_rates
    }
    if "nvfp4" in recipes and any("nvfp4" not in offer.job.recipes for offer in base.offers):
        yield WhatIf(name="allow-nvfp4", allow_recipes=("nvfp4",))
    mine = grouped((slot.option.pool.name, slot.option.gpu_hours) for slot in base.solution.slots)
    hours = {name: sum(rows) for name, rows in mine.items()}
    usable = [pool for pool in base.pools if any(may_use(offer.job, pool) for offer in base.offers)]
    ordered = sorted(usable, key=lambda pool: (-hours.get(pool.name, 0.0), -pool.gpus, pool.name))
    for number, pool in enumerate(ordered[:MOST_POOLS]):
        rack = max(pool.racks.values(), default=max(1, pool.nodes // 8))  # without racks, an eighth of the pool
        name = f"add-a-rack-{number + 1}" if number else "add-a-rack"
        yield WhatIf(name=name, add_nodes=MoreNodes(pool=pool.name, nodes=rack))


def worth(base: Solution, more: Solution) -> tuple[float, ...]:
    """(least, most, by the bounds) that further nodes take off the first objective: proved of the best plans.

    The best plan without them lies between its bound and its value, so does the one with them, and nodes may be idle.
    """
    gains = base.bound - more.values[0], base.values[0] - more.bound, base.bound - more.bound
    return tuple(max(0.0, gain) for gain in gains)


def _difference(question: WhatIf, fleet: Fleet, base: PlanAnswer, read: Terms, now: datetime) -> WhatIfAnswer:
    """Differences are changed minus base, None where one of them is not known."""
    try:
        changed = _changed(question, fleet, base, read)
        slots = sorted(base.solution.slots, key=lambda slot: slot.start) if base.solution else ()
        former = Former(tuple(place_of(slot.option) for slot in slots), is_kept=False)
        made = answer(changed.terms, pools(changed.fleet, changed.terms, now), former=former)
    except UnusableInput as error:
        return WhatIfAnswer(name=question.name, answer=cut(f"{question.name}: no plan: {error}"), feasible=False)
    before, after = base.totals, made.totals
    if before is None or after is None or base.solution is None or made.solution is None:
        not_known = made.not_known is not None
        clash = [clash_words(made.conflict, not_known)] if made.conflict else []
        why = "; ".join([*map(str, made.problems), *filter(None, clash)]) or "the limits can't all hold"
        said = cut(f"{changed.what}: {'not known' if not_known else 'no plan'}: {why}")
        return WhatIfAnswer(name=question.name, answer=said, feasible=None if not_known else False)
    unknown = _unknown(question, made)
    if unknown:
        return WhatIfAnswer(name=question.name, answer=cut(f"{changed.what}: not known: {unknown}"), feasible=True)
    days = after.days - before.days
    dollars, energy = _minus(after.dollars, before.dollars), _minus(after.megawatt_hours, before.megawatt_hours)
    figures = ((days, "days", readable_days), (dollars, "dollars", readable_dollars), (energy, "MWh", readable_energy))
    said = ", ".join(_signed(value, unit, readable) for value, unit, readable in figures if value is not None)
    largest = max(made.solution.slots, key=lambda slot: (slot.option.gpu_hours, slot.option.job.name))
    bound, before_it = binding(made, largest), risks_in(base.solution.slots)
    if question.add_nodes and NOT_KNOWN in bound:  # else "no change" would call them worthless
        said = f"{changed.what}: not known: {largest.option.job.name} is bound, since {bound}"
        return WhatIfAnswer(name=question.name, answer=cut(said), feasible=True)
    binds = "" if bound.startswith("nothing") else f"; {largest.option.job.name} is then bound by {bound}"
    least = most = None
    alone = question.model_fields_set <= {"name", "add_nodes", "add_pool"}
    if alone and (more := question.add_nodes or question.add_pool):
        least, most, bounds = worth(base.solution, made.solution)
        said += f"; {_worth(base, least, most, bounds / more.nodes)}"
    risks = (risk for risk in risks_in(made.solution.slots) if risk not in before_it)
    return WhatIfAnswer(
        name=question.name,
        answer=cut(". ".join((f"{changed.what}: {said}{binds}", *risks))),
        dollars=None if dollars is None else f"{dollars:.2f}",
        days=decimal(days),
        megawatt_hours=decimal(energy),
        worth_least=decimal(least),
        worth_most=decimal(most),
        feasible=True,
    )


def _worth(base: PlanAnswer, least: float, most: float, each: float) -> str:
    """What more nodes are worth, in words; `each`: of one of them, by the bounds."""
    assert base.solution is not None
    name, value = base.solution.objectives[0], base.solution.values[0]
    if most <= value * NOTHING:
        binds = any(binding(base, slot).startswith(("deadline", "budget", "power")) for slot in base.solution.slots)
        binds = binds or any(pool.terms.committed_gpu_hours for pool in base.pools)
        free = "what binds is elsewhere" if binds else "no deadline, budget or commitment binds here"
        return f"worth nothing: {'the last job ends no earlier' if name == 'time' else free}"
    readable = {"cost": readable_dollars, "energy": readable_energy, "time": readable_days}[name]
    by_bound = f" ({readable(each)} a node by the bound)" if each > value * NOTHING else ""
    low, high = readable(least) if least else "0", readable(most)
    return f"worth {high if low == high else f'between {low} and {high}'}{by_bound}"


def _unknown(question: WhatIf, made: PlanAnswer) -> str:
    """Why no pool has a rate of any recipe that a question is about; empty where one has."""
    targets, allowed = [offer.job.target for offer in made.offers], question.allow_recipes
    asked = (sources(pool, target, allowed, frozenset(allowed)) for pool in made.pools for target in targets)
    outcomes = [source for by_recipe in asked for source in by_recipe.values()]
    elsewise = question.model_fields_set - {"name", "allow_recipes"}
    answerable = elsewise or any(not isinstance(source, str) for source in outcomes)
    return "" if answerable else "; ".join(dict.fromkeys(map(str, outcomes)))


def cut(text: str) -> str:
    """As much as a status holds of one sentence."""
    return shortened(text, LONG)


def risks_in(slots: Iterable[JobSlot]) -> list[str]:
    """A sentence for each risk of the recipes that a plan uses."""
    return risks_of({(slot.option.recipe, slot.option.layers_bf16) for slot in slots})


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _changed(question: WhatIf, fleet: Fleet, base: PlanAnswer, read: Terms) -> _Changed:
    """All changes that one question names, one after the other. Raises UnusableInput for one that names none."""
    made = _Changed(fleet, read, "")
    for step in (_drained, _powered, _recipes, _more, _another, _lost, _prices):
        made = step(question, made, base)
    names = "drainSlowNodes, powerPercent, allowRecipes, denyRecipes, addNodes, addPool, loseRack or prices"
    require(bool(made.what), f"spec.whatIfs[{question.name}]", f"it asks for no change: give {names}")
    return made


def _drained(question: WhatIf, made: _Changed, base: PlanAnswer) -> _Changed:
    if not question.drain_slow_nodes:
        return made
    gone = {(pool.name, node) for pool in base.pools for node in pool.slow}
    if not gone:
        return made.said("no node is slow")
    names = sorted(node for _, node in gone)
    return _without(made, gone).said(f"without the slow nodes {first_of(names, NAMED)}")


def _without(made: _Changed, gone: set[tuple[str, str]]) -> _Changed:
    """Without these (pool, node); where the user says how many nodes a pool has, so many fewer."""
    kept, pools = [], dict(made.terms.pools)
    for pool in made.fleet.pools:
        lost = sum(node.count for node in pool.nodes if (pool.name, node.name) in gone)
        kept.append(pool.model_copy(update={"nodes": tuple(n for n in pool.nodes if (pool.name, n.name) not in gone)}))
        mine = own_terms(pool.name, pool.product, made.terms)
        if lost and mine.nodes is not None:
            pools[mine.name] = replace(mine, nodes=max(1, mine.nodes - lost))
    fleet = made.fleet.model_copy(update={"pools": tuple(kept)})
    return replace(made, fleet=fleet, terms=replace(made.terms, pools=pools))


def _powered(question: WhatIf, made: _Changed, base: PlanAnswer) -> _Changed:
    if question.power_percent is None:
        return made
    now = made.terms.limits.watts
    if now is None and base.totals is not None and base.totals.peak_megawatts is not None:
        now = base.totals.peak_megawatts * WATTS_PER_MEGAWATT
    if now is None:
        raise unusable(f"spec.whatIfs[{question.name}].powerPercent", "no limit is known: set power.budget")
    limit = now * (1 + question.power_percent / 100)
    terms = replace(made.terms, limits=replace(made.terms.limits, watts=limit))
    return made.said(f"with {readable_watts(limit)} ({question.power_percent:+d} %)", terms=terms)


def _recipes(question: WhatIf, made: _Changed, base: PlanAnswer) -> _Changed:
    more, fewer = frozenset[Recipe](question.allow_recipes), frozenset[Recipe](question.deny_recipes)
    if not more and not fewer:
        return made
    jobs = tuple(replace(job, recipes=(job.recipes | more) - fewer, named=job.named | more) for job in made.terms.jobs)
    at = f"spec.whatIfs[{question.name}].denyRecipes"
    require(all(job.recipes for job in jobs), at, "no recipe is left for some job")
    words = [f"with {recipe_text(name, None, None)}" for name in RECIPE_NAMES if name in more]
    words += [f"without {name}" for name in RECIPE_NAMES if name in fewer]
    return made.said(", ".join(words), terms=replace(made.terms, jobs=jobs))


def _more(question: WhatIf, made: _Changed, base: PlanAnswer) -> _Changed:
    asked = question.add_nodes
    if asked is None:
        return made
    pool = _named(asked.pool, base.pools, f"spec.whatIfs[{question.name}].addNodes.pool")
    terms_of_pool = own_terms(pool.name, pool.product, made.terms)
    terms_of_pool = replace(terms_of_pool, name=pool.name, more_nodes=terms_of_pool.more_nodes + asked.nodes)
    terms = replace(made.terms, pools={**made.terms.pools, terms_of_pool.name: terms_of_pool})
    text = f"with {number_of(asked.nodes, 'node')} ({asked.nodes * pool.gpus_per_node} GPUs) more in {pool.name}"
    return made.said(text, terms=terms)


def _another(question: WhatIf, made: _Changed, base: PlanAnswer) -> _Changed:
    """A pool more: nodes like those of the product's pool, without its racks, power budget and paid hours."""
    asked, at = question.add_pool, f"spec.whatIfs[{question.name}].addPool"
    if asked is None:
        return made
    like = _named(asked.product, base.pools, f"{at}.product")
    name, terms, price = f"more {like.name}", own_terms(like.name, like.product, made.terms), asked.dollars_per_gpu_hour
    require(not price or float(price) > 0, at, NO_PRICE)
    dollars = float(price) if price else terms.dollars_per_gpu_hour
    terms = replace(
        terms, name=name, product=like.product, gpus_per_node=like.gpus_per_node, dollars_per_gpu_hour=dollars
    )
    terms = replace(terms, nodes=asked.nodes, more_nodes=0, spare_nodes=None, power_watts=None, committed_gpu_hours=0.0)
    alike = [facts for facts in made.fleet.pools if facts.name == like.name]
    nodes = tuple(node.model_copy(update={"rack": ""}) for facts in alike for node in facts.nodes)
    added = [facts.model_copy(update={"name": name, "nodes": nodes}) for facts in alike]
    fleet = made.fleet.model_copy(update={"pools": (*made.fleet.pools, *added)})
    text = f"with a pool of {number_of(asked.nodes, 'node')} ({asked.nodes * like.gpus_per_node} GPUs) like {like.name}"
    priced = f" at {dollars:g} dollars a GPU hour" if dollars else ""
    return made.said(text + priced, fleet=fleet, terms=replace(made.terms, pools={**made.terms.pools, name: terms}))


def _lost(question: WhatIf, made: _Changed, base: PlanAnswer) -> _Changed:
    asked = question.lose_rack
    if asked is None:
        return made
    pool = _named(asked.pool, base.pools, f"spec.whatIfs[{question.name}].loseRack.pool")
    rack = asked.rack or max(pool.racks, key=lambda name: (pool.racks[name], name), default=None)
    if rack is None or rack not in pool.racks:
        racks = ", ".join(sorted(pool.racks)[:NAMED]) or "none: nodes have no rack labels"
        text = f"pool {pool.name} has no rack {rack or ''}; it has {racks}"
        raise unusable(f"spec.whatIfs[{question.name}].loseRack", text)
    facts = next(facts for facts in made.fleet.pools if facts.name == pool.name)
    gone = {(pool.name, node.name) for node in facts.nodes if node.rack == rack}
    return _without(made, gone).said(f"without rack {rack} ({number_of(pool.racks[rack], 'node')})")


def _named(asked: str, offered: Sequence[CandidatePool], field: str) -> CandidatePool:
    """The pool that is meant, by its name, or by a product that no other pool has. Raises UnusableInput."""
    named = [pool for pool in offered if pool.name == asked] or [p for p in offered if p.product == asked]
    names = ", ".join(pool.name for pool in named or offered)
    require(bool(named), field, f"there is no pool {asked}: name one of {names}")
    several = f"{asked} is the product of {len(named)} pools: write the name of one as pool: {names}"
    require(len(named) == 1, field, several)
    return named[0]


def _prices(question: WhatIf, made: _Changed, base: PlanAnswer) -> _Changed:
    pool_terms, at = dict(made.terms.pools), f"spec.whatIfs[{question.name}].prices"
    names, words = ", ".join(pool.name for pool in base.pools), []
    for price in question.prices:
        dollars = float(price.dollars_per_gpu_hour)
        require(dollars > 0, at, NO_PRICE)
        priced = [pool for pool in base.pools if price.pool in (pool.name, pool.product)]
        require(bool(priced), at, f"there is no pool {price.pool}: name one of {names}")
        for pool in priced:
            mine = own_terms(pool.name, pool.product, made.terms)
            pool_terms[pool.name] = replace(mine, name=pool.name, dollars_per_gpu_hour=dollars)
        words.append(f"{price.pool} at {dollars:g} dollars a GPU hour")
    return made.said(", ".join(words), terms=replace(made.terms, pools=pool_terms)) if words else made


def _signed(value: float, unit: str, readable: Callable[[float], str]) -> str:
    if abs(value) < 5e-4:
        return f"no change in {unit}"
    return f"{'+' if value > 0 else ''}{readable(value)}"
