ALTER TABLE holdfast.delivery_epochs DROP CONSTRAINT delivery_epochs_loss_is_whole, DROP COLUMN next_epoch, DROP COLUMN lost_at;
DROP TABLE holdfast.retirement_proofs, holdfast.journal_keys, holdfast.lineage_revivals;
ALTER TABLE holdfast.heads DROP CONSTRAINT heads_market_is_whole, DROP COLUMN base_fee, DROP COLUMN priority_fee, DROP COLUMN tx_type;
DROP TRIGGER lanes_fence_follows_nonces ON holdfast.lanes;
DROP TRIGGER lineages_ended_is_immutable ON holdfast.lineages;
DROP TRIGGER lineages_signed_is_not_abandoned ON holdfast.lineages;
DROP TRIGGER lineages_open_is_not_deleted ON holdfast.lineages;
DROP TRIGGER job_attempts_ended_is_immutable ON holdfast.job_attempts;
DROP FUNCTION holdfast.guard_fence(), holdfast.guard_ended_lineage(), holdfast.guard_open_nonce(), holdfast.guard_ended_attempt();
-- A frozen lane has no word in the older schema; paused is the nearest that gives out no nonce.
UPDATE holdfast.lanes SET state = 'paused', reason = 'frozen' WHERE state = 'frozen';
ALTER TABLE holdfast.lanes DROP CONSTRAINT lanes_state_check;
ALTER TABLE holdfast.lanes
    ADD CONSTRAINT lanes_state_check CHECK (state IN ('active', 'paused', 'draining', 'drained', 'retired')),
    DROP COLUMN head_since, DROP COLUMN pending_nonce, DROP COLUMN observed_block, DROP COLUMN observed_at, DROP COLUMN balance, DROP COLUMN balance_at,
    DROP COLUMN delegated;
DROP INDEX holdfast.tx_attempts_by_key;
ALTER TABLE holdfast.tx_attempts DROP CONSTRAINT tx_attempts_legacy_has_one_price, DROP COLUMN tx_type;
DROP INDEX holdfast.lineages_provisional, holdfast.lineages_finalized, holdfast.lineages_lost, holdfast.lineages_given_up;
ALTER TABLE holdfast.jobs DROP CONSTRAINT jobs_not_actionable_has_no_nonce, DROP COLUMN lineage_id;
UPDATE holdfast.lineages SET effective_gas_price = 0 WHERE state IN ('mined', 'reverted') AND effective_gas_price IS NULL;
ALTER TABLE holdfast.lineages
    DROP CONSTRAINT lineages_price_is_of_a_receipt, DROP CONSTRAINT lineages_receipt_is_whole,
    ADD CONSTRAINT lineages_receipt_is_whole CHECK ((state IN ('mined', 'reverted')) = (mined_hash IS NOT NULL AND block_number IS NOT NULL AND block_hash IS NOT NULL AND gas_used IS NOT NULL AND effective_gas_price IS NOT NULL)),
    DROP CONSTRAINT lineages_finalized_is_ended, DROP COLUMN replacements, DROP COLUMN noops, DROP COLUMN priced_block, DROP COLUMN priced_at,
    DROP COLUMN noop_reason, DROP COLUMN noop_detail, DROP COLUMN capped_at, DROP COLUMN revivals, DROP COLUMN finalized_at;
