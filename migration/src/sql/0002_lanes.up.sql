-- What a lane needs to end every nonce and to explain it: prices and no-ops of a lineage, revival after a reorganisation, what was seen
-- of a lane, and the proofs behind retiring a key. Guards that know nothing of the code stand beside them.

ALTER TABLE holdfast.jobs
    -- The nonce that the job owns. On the job's own row, because whoever waits for its lock reads that row anew and no other.
    ADD COLUMN lineage_id uuid,
    ADD CONSTRAINT jobs_not_actionable_has_no_nonce CHECK (state <> 'not_actionable' OR lineage_id IS NULL);
UPDATE holdfast.jobs j SET lineage_id = l.id FROM holdfast.lineages l WHERE l.job_id = j.id AND l.state NOT IN ('superseded', 'abandoned');

ALTER TABLE holdfast.lineages
    -- Priced attempts after the first, of the call and of the no-op.
    ADD COLUMN replacements integer NOT NULL DEFAULT 0 CHECK (replacements >= 0),
    ADD COLUMN noops        integer NOT NULL DEFAULT 0 CHECK (noops >= 0),
    -- The head at which the newest attempt was priced: at most one price a block.
    ADD COLUMN priced_block bigint  CHECK (priced_block >= 0),
    ADD COLUMN priced_at    timestamptz,
    -- The nonce is to be used up by a transfer of nothing to the signer itself. What mines decides.
    ADD COLUMN noop_reason  text    CHECK (noop_reason IN ('cancelled', 'refused')),
    ADD COLUMN noop_detail  text    CHECK (octet_length(noop_detail) <= 4096),
    ADD COLUMN capped_at    timestamptz,
    ADD COLUMN revivals     integer NOT NULL DEFAULT 0 CHECK (revivals >= 0),
    -- The end is TX_REORG_LOOKBACK_BLOCKS deep: nothing is expected to undo it.
    ADD COLUMN finalized_at timestamptz,
    ADD CONSTRAINT lineages_finalized_is_ended CHECK (finalized_at IS NULL OR ended_at IS NOT NULL),
    -- Not every node tells what was paid for gas; unknown is not nothing.
    DROP CONSTRAINT lineages_receipt_is_whole,
    ADD CONSTRAINT lineages_receipt_is_whole CHECK ((state IN ('mined', 'reverted')) = (mined_hash IS NOT NULL AND block_number IS NOT NULL AND block_hash IS NOT NULL AND gas_used IS NOT NULL)),
    ADD CONSTRAINT lineages_price_is_of_a_receipt CHECK (effective_gas_price IS NULL OR mined_hash IS NOT NULL);
-- Ends that a reorganisation may still undo.
CREATE INDEX lineages_provisional ON holdfast.lineages (lane_id, block_number) WHERE state IN ('mined', 'reverted') AND finalized_at IS NULL;
-- Nonces that strangers used up, until nothing can undo that.
CREATE INDEX lineages_lost ON holdfast.lineages (lane_id) WHERE state = 'superseded' AND finalized_at IS NULL;
CREATE INDEX lineages_given_up ON holdfast.lineages (lane_id, nonce DESC) WHERE state = 'superseded' AND finalized_at IS NOT NULL;
CREATE INDEX lineages_finalized ON holdfast.lineages (lane_id, block_number DESC) WHERE finalized_at IS NOT NULL AND block_number IS NOT NULL;

ALTER TABLE holdfast.tx_attempts
    -- EIP-2718: 0 is a legacy transaction (both prices are its gas price), 2 is EIP-1559. A replacement keeps the type.
    ADD COLUMN tx_type smallint NOT NULL DEFAULT 2 CHECK (tx_type IN (0, 2)),
    ADD CONSTRAINT tx_attempts_legacy_has_one_price CHECK (tx_type = 2 OR max_fee_per_gas = max_priority_fee_per_gas);
CREATE INDEX tx_attempts_by_key ON holdfast.tx_attempts (key_id, lineage_id);

ALTER TABLE holdfast.lanes DROP CONSTRAINT lanes_state_check;
ALTER TABLE holdfast.lanes
    ADD CONSTRAINT lanes_state_check CHECK (state IN ('active', 'paused', 'draining', 'drained', 'retired', 'frozen')),
    -- Since when the chain waits for latest_nonce.
    ADD COLUMN head_since     timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN pending_nonce  bigint        CHECK (pending_nonce >= 0),
    ADD COLUMN observed_block bigint        CHECK (observed_block >= 0),
    ADD COLUMN observed_at    timestamptz,
    ADD COLUMN balance        numeric(78,0) CHECK (balance >= 0),
    ADD COLUMN balance_at     timestamptz,
    -- The sender's code is a delegation (EIP-7702): nodes take one transaction in flight.
    ADD COLUMN delegated      boolean       NOT NULL DEFAULT false;

-- What the market asked for at that block, so that whoever explains a lane need not ask the chain. Unknown until the next block.
ALTER TABLE holdfast.heads
    ADD COLUMN base_fee     numeric(78,0) CHECK (base_fee >= 0),
    ADD COLUMN priority_fee numeric(78,0) CHECK (priority_fee >= 0),
    -- EIP-2718, as of tx_attempts.
    ADD COLUMN tx_type      smallint      CHECK (tx_type IN (0, 2)),
    ADD CONSTRAINT heads_market_is_whole CHECK ((base_fee IS NULL) = (priority_fee IS NULL) AND (base_fee IS NULL) = (tx_type IS NULL));

-- Ends that a reorganisation undid. Written by the guard below and by nobody else.
CREATE TABLE holdfast.lineage_revivals (
    lineage_id   uuid        NOT NULL REFERENCES holdfast.lineages (id),
    ordinal      integer     NOT NULL CHECK (ordinal > 0),
    state        text        NOT NULL CHECK (state IN ('mined', 'reverted', 'superseded')),
    mined_hash   bytea,
    block_number bigint,
    block_hash   bytea,
    proof        jsonb       NOT NULL,
    ended_at     timestamptz NOT NULL,
    revived_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (lineage_id, ordinal)
);

-- A lineage that has ended is immutable. The one way back is a revival, which keeps what was undone; marking it finalized adds a time only.
CREATE FUNCTION holdfast.guard_ended_lineage() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
DECLARE
    same holdfast.lineages;
BEGIN
    IF OLD.state IN ('mined', 'reverted', 'superseded') AND NEW.state IN ('signed', 'replaced') AND OLD.finalized_at IS NULL AND NEW.revivals = OLD.revivals + 1 THEN
        INSERT INTO holdfast.lineage_revivals (lineage_id, ordinal, state, mined_hash, block_number, block_hash, proof, ended_at)
        VALUES (OLD.id, NEW.revivals, OLD.state, OLD.mined_hash, OLD.block_number, OLD.block_hash, OLD.proof, OLD.ended_at);
        RETURN NEW;
    END IF;
    -- Nor does a nonce that a stranger used up stay his where it was undone: what never had bytes (lineages_signed_is_not_abandoned) is nobody's then.
    IF OLD.state = 'superseded' AND NEW.state = 'abandoned' AND OLD.finalized_at IS NULL AND NEW.finalized_at IS NULL AND NEW.nonce = OLD.nonce AND NEW.job_id = OLD.job_id THEN
        RETURN NEW;
    END IF;
    same := OLD;
    same.finalized_at := NEW.finalized_at;
    same.updated_at := NEW.updated_at;
    IF OLD.finalized_at IS NULL AND NEW.finalized_at IS NOT NULL AND same IS NOT DISTINCT FROM NEW THEN
        RETURN NEW;
    END IF;
    -- What nothing should undo was undone, and an operator thaws the lane: then it may be revived like any other.
    IF OLD.finalized_at IS NOT NULL AND NEW.finalized_at IS NULL AND same IS NOT DISTINCT FROM NEW
        AND EXISTS (SELECT 1 FROM holdfast.lanes WHERE id = OLD.lane_id AND state = 'frozen') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'lineage % has ended as % and is immutable', OLD.id, OLD.state USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER lineages_ended_is_immutable BEFORE UPDATE ON holdfast.lineages
    FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL) EXECUTE FUNCTION holdfast.guard_ended_lineage();

-- The fence moves only together with the nonces that it gives out or takes back, or over nonces that a majority has seen used up.
CREATE FUNCTION holdfast.guard_fence() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    bound bigint;
BEGIN
    SELECT count(*) INTO bound FROM holdfast.lineages l
    WHERE l.chain_id = NEW.chain_id AND l.signer = NEW.signer AND l.state <> 'abandoned' AND l.nonce >= least(OLD.next_nonce, NEW.next_nonce);
    IF NEW.next_nonce > OLD.next_nonce AND bound <> NEW.next_nonce - OLD.next_nonce AND NEW.next_nonce > NEW.settled_nonce THEN
        RAISE EXCEPTION 'lane %: the fence may not move from % to %: % nonces are bound there', OLD.id, OLD.next_nonce, NEW.next_nonce, bound
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.next_nonce < OLD.next_nonce AND bound <> 0 THEN
        RAISE EXCEPTION 'lane %: the fence may not go back from % to %: % nonces are bound there', OLD.id, OLD.next_nonce, NEW.next_nonce, bound
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER lanes_fence_follows_nonces BEFORE UPDATE OF next_nonce ON holdfast.lanes
    FOR EACH ROW WHEN (OLD.next_nonce <> NEW.next_nonce) EXECUTE FUNCTION holdfast.guard_fence();

-- How many times each journal key has sealed; counted ahead in blocks, so a crash never counts too few.
CREATE TABLE holdfast.journal_keys (
    id         text        PRIMARY KEY,
    sealed     bigint      NOT NULL DEFAULT 0 CHECK (sealed >= 0),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Append-only: what was proven before a signer or a journal key may go.
CREATE TABLE holdfast.retirement_proofs (
    id          bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    kind        text        NOT NULL CHECK (kind IN ('signer', 'journal_key')),
    subject     text        NOT NULL,
    passed      boolean     NOT NULL,
    proof       jsonb       NOT NULL,
    operator_id text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX retirement_proofs_by_subject ON holdfast.retirement_proofs (kind, subject, at DESC);

-- A nonce that has signed bytes is never given up: they may be mined at any time. Nor does its row go away before its end.
CREATE FUNCTION holdfast.guard_open_nonce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR EXISTS (SELECT 1 FROM holdfast.tx_attempts a WHERE a.lineage_id = OLD.id) THEN
        RAISE EXCEPTION 'lineage % is % and keeps its nonce %', OLD.id, OLD.state, OLD.nonce USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER lineages_signed_is_not_abandoned BEFORE UPDATE OF state ON holdfast.lineages
    FOR EACH ROW WHEN (OLD.state <> 'abandoned' AND NEW.state = 'abandoned') EXECUTE FUNCTION holdfast.guard_open_nonce();
CREATE TRIGGER lineages_open_is_not_deleted BEFORE DELETE ON holdfast.lineages
    FOR EACH ROW WHEN (OLD.ended_at IS NULL) EXECUTE FUNCTION holdfast.guard_open_nonce();

-- What was told of an execution when it ended stays as it was told.
CREATE FUNCTION holdfast.guard_ended_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'attempt % of job % has ended as % and is immutable', OLD.number, OLD.job_id, OLD.outcome USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER job_attempts_ended_is_immutable BEFORE UPDATE ON holdfast.job_attempts
    FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL) EXECUTE FUNCTION holdfast.guard_ended_attempt();

-- The data set that deliveries are being published into anew, and since when the one before it is known to be lost: what was published
-- earlier went with it. Stored, so that every process and every later one goes on where the first began.
ALTER TABLE holdfast.delivery_epochs
    ADD COLUMN next_epoch uuid,
    ADD COLUMN lost_at    timestamptz,
    ADD CONSTRAINT delivery_epochs_loss_is_whole CHECK ((next_epoch IS NULL) = (lost_at IS NULL));
