-- The coordination schema: one authority for jobs, deliveries, nonces, journal and audit.
-- uint256 is NUMERIC(78,0); hashes and addresses are bytea with their exact length checked.

CREATE TABLE holdfast.api_keys (
    id          text        PRIMARY KEY CHECK (id ~ '^[a-z0-9]{8}$'),
    project     text        NOT NULL CHECK (project ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    secret_hash bytea       NOT NULL CHECK (octet_length(secret_hash) = 32),
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    revoked_at  timestamptz
);

CREATE TABLE holdfast.jobs (
    id               uuid          PRIMARY KEY,
    project          text          NOT NULL,
    kind             text          NOT NULL CHECK (kind IN ('contract_call', 'transfer')),
    state            text          NOT NULL CHECK (state IN ('pending_batch', 'batched', 'queued', 'processing', 'retry', 'submitted',
                                       'completed', 'not_actionable', 'reverted', 'dead', 'quarantined', 'cancelled')),
    version          integer       NOT NULL DEFAULT 1 CHECK (version > 0),
    chain_id         bigint        NOT NULL CHECK (chain_id > 0),
    pool             text          NOT NULL,
    to_address       bytea         NOT NULL CHECK (octet_length(to_address) = 20),
    value            numeric(78,0) NOT NULL CHECK (value >= 0 AND value < 115792089237316195423570985008687907853269984665640564039457584007913129639936),
    data             bytea         NOT NULL CHECK (octet_length(data) <= 131072),
    gas_limit        bigint        CHECK (gas_limit BETWEEN 21000 AND 16777216),
    priority         smallint      NOT NULL CHECK (priority BETWEEN 1 AND 100),
    run_at           timestamptz   NOT NULL,
    metadata         jsonb         CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 16384),
    attempts         integer       NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    attempts_budget  integer       NOT NULL CHECK (attempts_budget > 0),
    execution_token  uuid,
    worker_id        uuid,
    processing_since timestamptz,
    cancel_asked_at  timestamptz,
    error_type       text,
    error_title      text,
    error_detail     text          CHECK (octet_length(error_detail) <= 4096),
    created_at       timestamptz   NOT NULL DEFAULT now(),
    updated_at       timestamptz   NOT NULL DEFAULT now(),
    finished_at      timestamptz,
    CONSTRAINT jobs_final_has_time CHECK ((state IN ('completed', 'not_actionable', 'reverted', 'dead', 'quarantined', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_processing_has_token CHECK ((state = 'processing') = (execution_token IS NOT NULL AND worker_id IS NOT NULL AND processing_since IS NOT NULL)),
    CONSTRAINT jobs_error_is_whole CHECK ((error_type IS NULL) = (error_title IS NULL))
);
-- Lists and counts look at open work only; totals come from counters.
CREATE INDEX jobs_open ON holdfast.jobs (state, created_at) WHERE state IN ('pending_batch', 'batched', 'queued', 'processing', 'retry', 'submitted');
CREATE INDEX jobs_dead ON holdfast.jobs (finished_at) WHERE state IN ('dead', 'quarantined');
CREATE INDEX jobs_processing ON holdfast.jobs (worker_id, processing_since) WHERE state = 'processing';
CREATE INDEX jobs_by_project ON holdfast.jobs (project, id);
CREATE INDEX jobs_by_state ON holdfast.jobs (project, state, id);

CREATE TABLE holdfast.idempotency_keys (
    project     text        NOT NULL,
    key         text        NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    job_id      uuid        NOT NULL REFERENCES holdfast.jobs (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, key)
);
CREATE INDEX idempotency_keys_by_job ON holdfast.idempotency_keys (job_id);

-- One row a job. next_at says when the delivery is due to be published or checked; NULL = nothing is to be delivered.
CREATE TABLE holdfast.outbox (
    job_id       uuid        PRIMARY KEY REFERENCES holdfast.jobs (id) ON DELETE CASCADE,
    generation   integer     NOT NULL DEFAULT 1 CHECK (generation > 0),
    priority     smallint    NOT NULL CHECK (priority BETWEEN 1 AND 100),
    deliver_at   timestamptz NOT NULL,
    next_at      timestamptz,
    published_at timestamptz,
    failures     integer     NOT NULL DEFAULT 0
);
CREATE INDEX outbox_due ON holdfast.outbox (next_at, job_id) WHERE next_at IS NOT NULL;
CREATE INDEX outbox_unpublished ON holdfast.outbox (deliver_at) WHERE next_at IS NOT NULL AND published_at IS NULL;

CREATE TABLE holdfast.job_attempts (
    job_id      uuid        NOT NULL REFERENCES holdfast.jobs (id) ON DELETE CASCADE,
    number      integer     NOT NULL CHECK (number > 0),
    token       uuid        NOT NULL UNIQUE,
    worker_id   uuid        NOT NULL,
    generation  integer     NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    outcome     text        CHECK (outcome IN ('submitted', 'not_actionable', 'retry', 'snoozed', 'dead', 'fenced', 'cancelled')),
    error_type  text,
    detail      text        CHECK (octet_length(detail) <= 4096),
    PRIMARY KEY (job_id, number),
    CONSTRAINT job_attempts_outcome_has_time CHECK ((outcome IS NULL) = (finished_at IS NULL))
);

CREATE TABLE holdfast.workers (
    id           uuid        PRIMARY KEY,
    instance     text        NOT NULL CHECK (octet_length(instance) BETWEEN 1 AND 128),
    role         text        NOT NULL,
    version      text        NOT NULL,
    state        text        NOT NULL CHECK (state IN ('starting', 'active', 'draining', 'drained', 'stopped', 'stale')),
    signers      bytea[]     NOT NULL DEFAULT '{}',
    processing   integer     NOT NULL DEFAULT 0 CHECK (processing >= 0),
    pool_size    integer     NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    stopped_at   timestamptz,
    CONSTRAINT workers_stopped_has_time CHECK ((state = 'stopped') = (stopped_at IS NOT NULL))
);
-- Two live processes of one INSTANCE_ID would be drained by one command: the second is refused.
CREATE UNIQUE INDEX workers_one_live_instance ON holdfast.workers (instance) WHERE state IN ('starting', 'active', 'draining', 'drained');

CREATE TABLE holdfast.signers (
    address    bytea       PRIMARY KEY CHECK (octet_length(address) = 20),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE holdfast.pools (
    chain_id   bigint      NOT NULL CHECK (chain_id > 0),
    name       text        NOT NULL CHECK (name ~ '^[a-z0-9_-]{1,63}:[a-z0-9_-]{1,63}$'),
    cursor     bigint      NOT NULL DEFAULT 0 CHECK (cursor >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (chain_id, name)
);

CREATE TABLE holdfast.lanes (
    id           bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    chain_id     bigint      NOT NULL,
    pool         text        NOT NULL,
    signer       bytea       NOT NULL REFERENCES holdfast.signers (address),
    state        text        NOT NULL CHECK (state IN ('active', 'paused', 'draining', 'drained', 'retired')),
    reason       text,
    next_nonce   bigint      NOT NULL CHECK (next_nonce >= 0),
    latest_nonce bigint      NOT NULL CHECK (latest_nonce >= 0),
    settled_nonce bigint     NOT NULL CHECK (settled_nonce >= 0),
    width        integer     NOT NULL CHECK (width > 0),
    lease_holder uuid,
    lease_until  timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (chain_id, signer),
    FOREIGN KEY (chain_id, pool) REFERENCES holdfast.pools (chain_id, name),
    CONSTRAINT lanes_lease_is_whole CHECK ((lease_holder IS NULL) = (lease_until IS NULL))
);
CREATE INDEX lanes_by_pool ON holdfast.lanes (chain_id, pool, id);

-- Append-only: who joined and left which pool, and by whom.
CREATE TABLE holdfast.signer_history (
    id       bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    chain_id bigint      NOT NULL,
    pool     text        NOT NULL,
    signer   bytea       NOT NULL CHECK (octet_length(signer) = 20),
    change   text        NOT NULL CHECK (change IN ('joined', 'left')),
    actor    text        NOT NULL,
    at       timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE holdfast.lineages (
    id           uuid          PRIMARY KEY,
    job_id       uuid          NOT NULL REFERENCES holdfast.jobs (id),
    lane_id      bigint        NOT NULL REFERENCES holdfast.lanes (id),
    chain_id     bigint        NOT NULL,
    signer       bytea         NOT NULL CHECK (octet_length(signer) = 20),
    nonce        bigint        NOT NULL CHECK (nonce >= 0),
    call_hash    bytea         NOT NULL CHECK (octet_length(call_hash) = 32),
    to_address   bytea         NOT NULL CHECK (octet_length(to_address) = 20),
    value        numeric(78,0) NOT NULL CHECK (value >= 0),
    data         bytea         NOT NULL,
    gas_limit    bigint        NOT NULL CHECK (gas_limit >= 21000),
    state        text          NOT NULL CHECK (state IN ('allocated', 'signed', 'broadcast', 'replaced', 'mined', 'reverted', 'superseded', 'abandoned')),
    sends        integer       NOT NULL DEFAULT 0,
    last_sent_at timestamptz,
    last_answer  text,
    mined_hash   bytea         CHECK (octet_length(mined_hash) = 32),
    block_number bigint        CHECK (block_number >= 0),
    block_hash   bytea         CHECK (octet_length(block_hash) = 32),
    gas_used     bigint        CHECK (gas_used >= 0),
    effective_gas_price numeric(78,0) CHECK (effective_gas_price >= 0),
    proof        jsonb,
    created_at   timestamptz   NOT NULL DEFAULT now(),
    updated_at   timestamptz   NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    CONSTRAINT lineages_final_has_time CHECK ((state IN ('mined', 'reverted', 'superseded', 'abandoned')) = (ended_at IS NOT NULL)),
    CONSTRAINT lineages_receipt_is_whole CHECK ((state IN ('mined', 'reverted')) = (mined_hash IS NOT NULL AND block_number IS NOT NULL AND block_hash IS NOT NULL AND gas_used IS NOT NULL AND effective_gas_price IS NOT NULL)),
    CONSTRAINT lineages_end_is_proven CHECK (state NOT IN ('mined', 'reverted', 'superseded') OR proof IS NOT NULL)
);
-- A second lineage of a job needs the proven end of the first; a nonce that was released unsigned may be used again.
CREATE UNIQUE INDEX lineages_one_live_per_job ON holdfast.lineages (job_id) WHERE state NOT IN ('superseded', 'abandoned');
CREATE UNIQUE INDEX lineages_one_per_nonce ON holdfast.lineages (chain_id, signer, nonce) WHERE state <> 'abandoned';
CREATE INDEX lineages_open ON holdfast.lineages (lane_id, nonce) WHERE state IN ('allocated', 'signed', 'broadcast', 'replaced');
CREATE INDEX lineages_by_job ON holdfast.lineages (job_id, created_at);

-- The journal. Bytes, hash and price never change: no role but the owner may update them.
CREATE TABLE holdfast.tx_attempts (
    hash                     bytea         PRIMARY KEY CHECK (octet_length(hash) = 32),
    lineage_id               uuid          NOT NULL REFERENCES holdfast.lineages (id),
    ordinal                  integer       NOT NULL CHECK (ordinal > 0),
    purpose                  text          NOT NULL CHECK (purpose IN ('call', 'replacement', 'noop')),
    max_fee_per_gas          numeric(78,0) NOT NULL CHECK (max_fee_per_gas >= 0),
    max_priority_fee_per_gas numeric(78,0) NOT NULL CHECK (max_priority_fee_per_gas >= 0),
    gas_limit                bigint        NOT NULL CHECK (gas_limit >= 21000),
    key_id                   text          NOT NULL,
    iv                       bytea         NOT NULL CHECK (octet_length(iv) = 12),
    ciphertext               bytea         NOT NULL,
    created_at               timestamptz   NOT NULL DEFAULT now(),
    UNIQUE (lineage_id, ordinal),
    CONSTRAINT tx_attempts_tip_under_cap CHECK (max_priority_fee_per_gas <= max_fee_per_gas)
);

CREATE TABLE holdfast.heads (
    chain_id   bigint      PRIMARY KEY CHECK (chain_id > 0),
    number     bigint      NOT NULL CHECK (number >= 0),
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32),
    seen_at    timestamptz NOT NULL DEFAULT now()
);

-- Append-only.
CREATE TABLE holdfast.operator_actions (
    id          bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    operator_id text        NOT NULL CHECK (octet_length(operator_id) BETWEEN 1 AND 128),
    login       text        NOT NULL DEFAULT session_user,
    action      text        NOT NULL,
    target      text        NOT NULL,
    reason      text        NOT NULL DEFAULT '',
    before      text,
    after       text,
    at          timestamptz NOT NULL DEFAULT now()
);

-- Append-only: the history of every job and the source of the realtime stream.
CREATE TABLE holdfast.stream_events (
    seq        bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    domain     text        NOT NULL,
    key        uuid        NOT NULL,
    version    integer     NOT NULL,
    type       text        NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    UNIQUE (domain, key, version)
);

-- Which Redis data set the deliveries were published into; a Redis without this epoch has lost them.
CREATE TABLE holdfast.delivery_epochs (
    prefix     text        PRIMARY KEY,
    epoch      uuid        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now()
);
