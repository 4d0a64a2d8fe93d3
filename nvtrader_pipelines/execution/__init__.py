"""From target weights to orders: plans, compliance, brokers, kill switch, reconciliation and the audit."""
