//! What the journal knows by `MESSAGE_ID`, one constant a kind; `units/klbr.catalog` explains each.
//!
//! An id is for ever: a kind that changes its meaning gets a new one.

/// The host is ready: the log is open and nothing of an earlier host is left.
pub const READY: &str = "13f9fe0742190959f6797d94eb30e594";
/// The host is on its way down.
pub const STOPPING: &str = "1eba3640b8b6bb26e0f3fa13987577d1";
/// The configuration or the data is unusable; the host only answers that.
pub const UNUSABLE: &str = "bde6f9d148293ad5f34553e234a68436";
/// The configuration was read again and is in force.
pub const RELOADED: &str = "e404583d9a84eee00d4249dfffa54d81";
/// A new configuration is bad; the old one stays in force.
pub const RELOAD_REFUSED: &str = "56dc1c7fe7138942061eea514a79f3f8";
/// A worker runs.
pub const WORKER_STARTED: &str = "2f1b49fa71615c65160ec49ccc53d276";
/// A worker did not start.
pub const WORKER_FAILED: &str = "43c5d2acd729039cafa0ecb5cb723a8d";
/// A worker ended by itself or was told to.
pub const WORKER_ENDED: &str = "66dcb8ca17811238d5cd591aeacae083";
/// A worker and all its descendants were killed.
pub const HARD_STOP: &str = "0dc63130f0570c40fe8af71dfdfeb2c4";
/// A worker used more memory than it may, and was killed.
pub const OUT_OF_MEMORY: &str = "ba064d9c5c41acfb5a5ce66b58dd70c3";
/// Workers are held by something weaker than there could be.
pub const DOWNGRADE: &str = "b3ea71d1db94bc447f375d3f87e6f705";
/// A setting of the sandbox cannot be enforced here.
pub const UNENFORCED: &str = "c68b197f40c8aeff2a8dc37f834cbae0";
/// Review keeps a text back.
pub const HELD: &str = "c51e923da158d1dd724fe399851c0036";
/// The model's route gave no answer.
pub const ROUTE_FAILED: &str = "4ecc0ecc6bdcfe6bd3083473aee8327b";
/// What an earlier host left open was closed.
pub const RECOVERED: &str = "b0f22987b392fb2f97bf13282dfa2378";
/// A turn was ended by one of its guards.
pub const BUDGET: &str = "a4d8766d74753e64bf19038396d62ef1";
/// The log cannot be written; nothing is done any more that it would not know.
pub const LOG_FAILED: &str = "63f58057e6a3293ff116f441151ad7cf";
/// A turn began.
pub const TURN_STARTED: &str = "248fbeb4aa71051fc9d83ebf9cb7b235";
/// A turn ended.
pub const TURN_ENDED: &str = "f5a709a1344261b9ccfa70bb351c3698";
/// A cell ended.
pub const CELL_ENDED: &str = "62519396141917c38d1aca96d60b0bbf";

/// All of them, by the names that the catalog's test uses.
pub const ALL: &[(&str, &str)] = &[
    ("READY", READY),
    ("STOPPING", STOPPING),
    ("UNUSABLE", UNUSABLE),
    ("RELOADED", RELOADED),
    ("RELOAD_REFUSED", RELOAD_REFUSED),
    ("WORKER_STARTED", WORKER_STARTED),
    ("WORKER_FAILED", WORKER_FAILED),
    ("WORKER_ENDED", WORKER_ENDED),
    ("HARD_STOP", HARD_STOP),
    ("OUT_OF_MEMORY", OUT_OF_MEMORY),
    ("DOWNGRADE", DOWNGRADE),
    ("UNENFORCED", UNENFORCED),
    ("HELD", HELD),
    ("ROUTE_FAILED", ROUTE_FAILED),
    ("RECOVERED", RECOVERED),
    ("BUDGET", BUDGET),
    ("LOG_FAILED", LOG_FAILED),
    ("TURN_STARTED", TURN_STARTED),
    ("TURN_ENDED", TURN_ENDED),
    ("CELL_ENDED", CELL_ENDED),
];
