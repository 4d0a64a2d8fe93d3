"""Documented query from a fill back to the seeds of its decision."""

PROVENANCE = """
SELECT fill.session, fill.symbol, fill.side, round(fill.quantity, 2) AS shares, round(fill.price, 2) AS price,
       plan.plan_id, plan.session AS decided, plan.policy, plan.fold, trained.seed, left(trained.sha256, 8) AS file,
       run.run_id, version.partition_key, plan.snapshot_ids ->> 'gold.returns' AS returns_snapshot, run.source
FROM portfolio.fills AS fill
JOIN portfolio.orders AS placed ON placed.order_id = fill.order_id
JOIN portfolio.rebalance_plan AS plan ON plan.plan_id = placed.plan_id
JOIN rl.runs AS run ON run.run_id = plan.run_id
JOIN ledger.versions AS version ON version.spec_hash = run.spec_hash
JOIN ledger.policies AS trained
  ON trained.run_id = run.run_id AND trained.fold = plan.fold AND list_contains(plan.seeds, trained.seed)
ORDER BY fill.session DESC, fill.symbol, trained.seed
"""
