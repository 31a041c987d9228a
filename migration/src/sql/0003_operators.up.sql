-- What operators decide of dead jobs, and a log of their acts that shows when somebody has tampered with it.

-- Append-only: that a dead job is dealt with, and how. It is about one death: a job that was taken up again and died again has to be dealt with anew.
CREATE TABLE holdfast.job_resolutions (
    job_id      uuid        NOT NULL REFERENCES holdfast.jobs (id),
    finished_at timestamptz NOT NULL,
    operator_id text        NOT NULL CHECK (octet_length(operator_id) BETWEEN 1 AND 128),
    reason      text        NOT NULL CHECK (reason <> ''),
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, finished_at)
);

-- What operators want of the queue under a prefix. Here and not in Redis, which may forget it.
ALTER TABLE holdfast.delivery_epochs
    ADD COLUMN paused_at  timestamptz,
    ADD COLUMN rebuild_at timestamptz;

-- The parts, each with its length in bytes before it, so that nothing can move from one to its neighbour; - stands for none.
CREATE FUNCTION holdfast.chained(parts text[]) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog AS $$
    SELECT sha256(convert_to(string_agg(coalesce(octet_length(part) || ':' || part, '-'), '' ORDER BY place), 'UTF8'))
    FROM unnest(parts) WITH ORDINALITY AS t (part, place)
$$;

ALTER TABLE holdfast.operator_actions
    -- Who the connection says that it is, and from where.
    ADD COLUMN client    text   NOT NULL DEFAULT '',
    -- The place in the chain; ids are given out before a row waits for the one before it.
    ADD COLUMN position  bigint,
    ADD COLUMN prev_hash bytea,
    ADD COLUMN hash      bytea;

CREATE FUNCTION holdfast.chain_operator_action() RETURNS trigger LANGUAGE plpgsql SET search_path = holdfast, pg_catalog AS $$
DECLARE
    last record;
BEGIN
    -- One after the other, until the end of the transaction: an act and its row are there together or not at all.
    PERFORM pg_advisory_xact_lock(7597137417);
    SELECT a.position, a.hash INTO last FROM operator_actions a WHERE a.position IS NOT NULL ORDER BY a.position DESC LIMIT 1;
    NEW.login := session_user;
    NEW.client := concat_ws(' ', nullif(current_setting('application_name', true), ''), host(inet_client_addr()));
    NEW.position := coalesce(last.position, 0) + 1;
    NEW.prev_hash := coalesce(last.hash, decode(repeat('00', 32), 'hex'));
    NEW.hash := chained(ARRAY[NEW.position::text, encode(NEW.prev_hash, 'hex'), NEW.id::text, NEW.operator_id, NEW.login, NEW.client, NEW.action, NEW.target,
        NEW.reason, NEW.before, NEW.after, (extract(epoch FROM NEW.at) * 1000000)::bigint::text]);
    RETURN NEW;
END $$;

DO $$
DECLARE
    one record;
    prev bytea := decode(repeat('00', 32), 'hex');
    place bigint := 0;
BEGIN
    FOR one IN SELECT * FROM holdfast.operator_actions ORDER BY id LOOP
        place := place + 1;
        UPDATE holdfast.operator_actions SET position = place, prev_hash = prev, hash = holdfast.chained(ARRAY[place::text, encode(prev, 'hex'), one.id::text, one.operator_id,
            one.login, one.client, one.action, one.target, one.reason, one.before, one.after, (extract(epoch FROM one.at) * 1000000)::bigint::text])
        WHERE id = one.id RETURNING hash INTO prev;
    END LOOP;
END $$;

ALTER TABLE holdfast.operator_actions
    ALTER COLUMN position SET NOT NULL,
    ALTER COLUMN prev_hash SET NOT NULL,
    ALTER COLUMN hash SET NOT NULL,
    ADD CONSTRAINT operator_actions_one_chain UNIQUE (position),
    ADD CONSTRAINT operator_actions_no_fork UNIQUE (prev_hash);
CREATE INDEX operator_actions_by_target ON holdfast.operator_actions (target, position DESC);

CREATE TRIGGER operator_actions_are_chained BEFORE INSERT ON holdfast.operator_actions FOR EACH ROW EXECUTE FUNCTION holdfast.chain_operator_action();
