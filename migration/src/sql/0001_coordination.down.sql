DROP TABLE holdfast.delivery_epochs, holdfast.stream_events, holdfast.operator_actions, holdfast.heads, holdfast.tx_attempts, holdfast.lineages,
    holdfast.signer_history, holdfast.lanes, holdfast.pools, holdfast.signers, holdfast.workers, holdfast.job_attempts, holdfast.outbox,
    holdfast.idempotency_keys, holdfast.jobs, holdfast.api_keys;
