-- The log, and what it projects to. Every table but `events` can be made anew from `events`.

CREATE TABLE events (
    id        INTEGER PRIMARY KEY,
    session   TEXT NOT NULL,
    kind      TEXT NOT NULL,
    source    TEXT NOT NULL,
    execution TEXT,
    at_ms     INTEGER NOT NULL,
    payload   TEXT NOT NULL
) STRICT;
-- Their entries end with the id: the newest of a kind, or of a session's kind, is one seek.
CREATE INDEX events_by_kind ON events (kind);
CREATE INDEX events_by_session ON events (session, kind);
CREATE TRIGGER events_keep_their_words BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER events_stay BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;

CREATE TABLE sessions (
    id              TEXT PRIMARY KEY,
    last_turn       INTEGER NOT NULL DEFAULT 0,
    turn            INTEGER,
    turn_started    INTEGER,
    turn_steps      INTEGER NOT NULL DEFAULT 0,
    turn_deliveries INTEGER NOT NULL DEFAULT 0,
    wait_event      INTEGER,
    wait_deadline   INTEGER,
    wait_reason     TEXT,
    blocks          INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What waits to enter a transcript: inputs, and what the host observed.
CREATE TABLE arrivals (
    event       INTEGER PRIMARY KEY REFERENCES events (id),
    session     TEXT NOT NULL REFERENCES sessions (id),
    observation INTEGER NOT NULL,
    adopted     INTEGER
) STRICT;
CREATE INDEX arrivals_waiting ON arrivals (session, event) WHERE adopted IS NULL;

CREATE TABLE blocks (
    session TEXT NOT NULL REFERENCES sessions (id),
    seq     INTEGER NOT NULL,
    event   INTEGER NOT NULL REFERENCES events (id),
    call    INTEGER,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    event   INTEGER PRIMARY KEY REFERENCES events (id),
    session TEXT NOT NULL REFERENCES sessions (id),
    route   TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    settled INTEGER
) STRICT;
CREATE INDEX requests_by_session ON requests (session, event);
CREATE INDEX requests_by_time ON requests (session, at_ms);
CREATE INDEX requests_open ON requests (event) WHERE settled IS NULL;

CREATE TABLE responses (
    event         INTEGER PRIMARY KEY REFERENCES events (id),
    session       TEXT NOT NULL REFERENCES sessions (id),
    at_ms         INTEGER NOT NULL,
    tokens        INTEGER,
    prompt_tokens INTEGER,
    calls         INTEGER NOT NULL,
    ended         INTEGER
) STRICT;
CREATE INDEX responses_by_time ON responses (session, at_ms, tokens);
CREATE INDEX responses_open ON responses (event) WHERE ended IS NULL;

CREATE TABLE route_answers (
    session TEXT NOT NULL,
    route   TEXT NOT NULL,
    answers INTEGER NOT NULL,
    PRIMARY KEY (session, route)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    execution     TEXT PRIMARY KEY,
    session       TEXT NOT NULL REFERENCES sessions (id),
    generation    TEXT NOT NULL,
    origin        TEXT NOT NULL,
    response      INTEGER REFERENCES responses (event),
    call          INTEGER,
    started       INTEGER NOT NULL REFERENCES events (id),
    started_at_ms INTEGER NOT NULL,
    completed     INTEGER
) STRICT;
CREATE INDEX executions_open ON executions (started) WHERE completed IS NULL;
-- A call is never run twice.
CREATE UNIQUE INDEX executions_of_response ON executions (response, call) WHERE response IS NOT NULL;

CREATE TABLE effects (
    execution TEXT NOT NULL,
    request   TEXT NOT NULL,
    effect    TEXT NOT NULL UNIQUE,
    session   TEXT NOT NULL REFERENCES sessions (id),
    method    TEXT NOT NULL,
    digest    TEXT NOT NULL,
    intended  INTEGER NOT NULL REFERENCES events (id),
    state     TEXT NOT NULL,
    event     INTEGER,
    receipt   TEXT,
    PRIMARY KEY (execution, request)
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_open ON effects (intended) WHERE state = 'intended';

CREATE TABLE deliveries (
    effect  TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    event   INTEGER NOT NULL REFERENCES events (id),
    state   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_held ON deliveries (event) WHERE state = 'held';

CREATE TABLE generations (
    started     INTEGER PRIMARY KEY REFERENCES events (id),
    session     TEXT NOT NULL REFERENCES sessions (id),
    role        TEXT NOT NULL,
    generation  TEXT NOT NULL,
    unit        TEXT NOT NULL,
    containment TEXT NOT NULL,
    ended       INTEGER
) STRICT;
CREATE INDEX generations_by_role ON generations (session, role, started);
CREATE UNIQUE INDEX generations_by_name ON generations (session, role, generation);
CREATE INDEX generations_open ON generations (started) WHERE ended IS NULL;

CREATE TABLE behaviors (
    epoch   INTEGER PRIMARY KEY,
    event   INTEGER NOT NULL REFERENCES events (id)
) STRICT;
