-- Writes down that Redis lost its data, once: whoever notices the same loss later, or after a crash, gets the same moment. Another loss
-- while deliveries are still being published anew starts over. Locks: the row of the prefix. Served by: delivery_epochs_pkey.
UPDATE holdfast.delivery_epochs SET next_epoch = $3, lost_at = CASE WHEN next_epoch = $3 THEN lost_at ELSE clock_timestamp() END
WHERE prefix = $1 AND epoch = $2
RETURNING lost_at
