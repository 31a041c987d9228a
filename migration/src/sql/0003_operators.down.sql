DROP TRIGGER operator_actions_are_chained ON holdfast.operator_actions;
DROP INDEX holdfast.operator_actions_by_target;
ALTER TABLE holdfast.operator_actions DROP CONSTRAINT operator_actions_one_chain, DROP CONSTRAINT operator_actions_no_fork, DROP COLUMN client, DROP COLUMN position,
    DROP COLUMN prev_hash, DROP COLUMN hash;
DROP FUNCTION holdfast.chain_operator_action();
DROP FUNCTION holdfast.chained(text[]);
DROP TABLE holdfast.job_resolutions;
ALTER TABLE holdfast.delivery_epochs DROP COLUMN paused_at, DROP COLUMN rebuild_at;
