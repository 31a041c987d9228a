-- After the loss of all of Redis: every open delivery is due at once, under its own id.
-- Locks: all open outbox rows. Served by: outbox_due.
UPDATE holdfast.outbox SET published_at = NULL, next_at = now(), failures = 0 WHERE next_at IS NOT NULL
