"""From target weights to orders: plans, compliance, brokers, the kill switch's hold, reconciliation, the audit."""
