import datetime as dt

from nvtrader_pipelines.storage.active_policy import read_active
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.promotion_round import consider_newest, newer_than_active
from nvtrader_pipelines.storage.runs import complete
from nvtrader_pipelines.storage.tables import PROMOTIONS
from tests.storage import activations, gate
from tests.storage.activations import LATER
from tests.storage.gate import MARKET, ask, earned, say, spec, trades
from tests.storage.untrained import AT, planned, sealed

lake, runs, nothing_asked = activations.lake, gate.runs, gate.nothing_asked  # fixtures


def test_what_a_person_replaced_no_round_puts_back_until_it_is_put_forward_again(lake, runs):
    ledger = Ledger.open(lake.home)
    for day, name in enumerate(("steady", "still")):
        complete(lake, runs[name], AT + dt.timedelta(days=day))

    def asked(day):
        return consider_newest(lake, ledger, "gate", lambda: AT + dt.timedelta(days=day))

    def answered(found):
        return [(answer.candidate.policy, answer.activated) for answer in found.answers], trades(lake)

    assert answered(asked(0)) == ([("steady", True), ("still", True)], "still")
    say(lake, "steady", "still misbehaved", AT + dt.timedelta(days=1))
    found = asked(2)
    assert answered(found) == ([("steady", False)], "steady")
    assert found.problems["still"] == (
        f"ann replaced still (run {runs['still'].run_id[:8]}) by steady (run {runs['steady'].run_id[:8]}) on "
        "2024-01-04 (still misbehaved), which is not undone without a person: "
        f"`nvtrader policies promote {runs['still'].run_id[:8]}` asks the gate again"
    )
    assert ask(lake, "still", by="ann", at=AT + dt.timedelta(days=3)).activated
    assert answered(asked(4)) == ([("steady", False), ("still", False)], "still")
    moves = lake.read(PROMOTIONS).filter("activated").sort("considered_at")
    assert moves.select("policy", "decision", "by").rows() == [
        ("steady", "gate", "gate"),
        ("still", "gate", "gate"),
        ("steady", "person", "ann"),
        ("still", "gate", "ann"),
    ]
    assert [event.policy for event in JsonlAudit(lake.home).events()] == moves["policy"].to_list()


def test_what_became_of_a_newer_run_of_the_experiment_that_trades_is_told_with_what_a_person_can_do(lake):
    before, after = (sealed(lake, planned(lake, spec("again", description=text))) for text in ("", "once more"))
    for run, at in ((before, AT), (after, LATER)):
        earned(lake, run, MARKET)
        complete(lake, run, at)
    ask(lake, before.run_id)
    active = read_active(lake.home)
    assert active is not None
    told = newer_than_active(lake, active)
    by_hand = f"to let it trade all the same: `nvtrader policies activate {after.run_id[:8]} --reason WHY`"
    newer = f"run {after.run_id[:8]} of again is newer than the one that trades"
    assert told == f"{newer}: the gate was not asked yet: `nvtrader policies promote`; {by_hand}"
    said = ask(lake, after.run_id)
    assert f"it earns the same as again (run {before.run_id[:8]}), which trades, so" in said.verdict.sentence
    assert newer_than_active(lake, active) == f"{newer}: {said.verdict.sentence}; {by_hand}"
    activated = say(lake, after.run_id)
    assert activated.activated
    latest = read_active(lake.home)
    assert latest is not None
    assert newer_than_active(lake, latest) is None
    say(lake, before.run_id, "it was steadier", LATER)
    back = read_active(lake.home)
    assert back is not None
    replaced = f"ann replaced again (run {after.run_id[:8]}) by again (run {before.run_id[:8]}) on 2024-01-04 (it was"
    assert (newer_than_active(lake, back) or "").startswith(f"{newer}: {replaced} steadier), which is not undone")
