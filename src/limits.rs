//! Every bound of the program, named once, with its unit.
//!
//! What an operator may change is in [`crate::config::Limits`], whose defaults are here.

/// Characters of an identifier (klbr-protocol(7)).
pub const IDENTIFIER_BYTES_MAX: usize = 128;
/// Payload of one control frame (klbr-protocol(7)).
pub const FRAME_BYTES_MAX: usize = 1_048_576;
/// Nesting of JSON on the control socket; the outermost object is the first level.
pub const JSON_DEPTH_MAX: usize = 128;
/// Source of one cell (klbr-protocol(7)).
pub const CODE_BYTES_MAX: usize = 262_144;
/// Text of all output records of one cell together (klbr-protocol(7)).
pub const OUTPUT_BYTES_MAX: usize = 65_536;
/// Output records of one cell (klbr-protocol(7)).
pub const OUTPUT_RECORDS_MAX: usize = 256;
/// Error text of one cell (klbr-protocol(7)).
pub const ERROR_BYTES_MAX: usize = 65_536;
/// Host requests of one cell (klbr-protocol(7)).
pub const REQUESTS_PER_CELL_MAX: usize = 128;
/// Kept end of a worker's raw standard output or error, per stream.
pub const TAIL_BYTES_MAX: usize = 8_192;
/// Budget of one hook call, waiting in the queue included (klbr-protocol(7)).
pub const HOOK_BUDGET_MS: u64 = 2_000;
/// Hook calls that may wait for the hook worker.
pub const HOOK_QUEUE_MAX: usize = 64;
/// Time a worker has to end after `shutdown`.
pub const SHUTDOWN_GRACE_MS: u64 = 3_000;
/// Time for reading what is left in a pipe after the process behind it has ended.
pub const DRAIN_MS_MAX: u64 = 250;
/// Largest priority of a `wake` (klbr-protocol(7)).
pub const HOOK_PRIORITY_MAX: i64 = 100;
/// Longest `defer` (klbr-protocol(7)).
pub const HOOK_DEFER_SECONDS_MAX: f64 = 600.0;
/// Reason of an `ignore` or a `hold` (klbr-protocol(7)).
pub const HOOK_REASON_BYTES_MAX: usize = 2_048;
/// Longest durable wait that a cell may ask for.
pub const WAIT_SECONDS_MAX: f64 = 600.0;
/// Characters of the reason of a wait.
pub const WAIT_REASON_BYTES_MAX: usize = 2_048;
/// Text of one `local.send`.
pub const SEND_BYTES_MAX: usize = 65_536;
/// Text of one operator input.
pub const INPUT_BYTES_MAX: usize = 1_048_576;
/// One message to the operator socket: an input of the largest size fits, even where JSON has to
/// escape each of its bytes in six.
pub const OPERATOR_MESSAGE_BYTES_MAX: usize = 8_388_608;
/// One message from the operator socket: an event with the largest answer of a route fits.
pub const OPERATOR_REPLY_BYTES_MAX: usize = 134_217_728;
/// Events that one read of the log fetches for an operator's connection.
pub const OPERATOR_FETCH_EVENTS: usize = 32;
/// Time a connection that is being closed has to take our last words and to stop sending.
pub const OPERATOR_LINGER_MS_MAX: u64 = 1_000;
/// Connections to the operator socket at one time.
pub const OPERATOR_CONNECTIONS_MAX: usize = 256;
/// Time a client may leave our answer unread before its connection is closed.
pub const OPERATOR_WRITE_MS_MAX: u64 = 10_000;
/// Time that operator connections have to end once the host stops.
pub const OPERATOR_DRAIN_MS_MAX: u64 = 2_000;
/// Cells of the operator that may wait behind a running one.
pub const EXEC_QUEUE_MAX: usize = 64;
/// Events of one page when a reader catches up with the log.
pub const PAGE_EVENTS_MAX: usize = 256;
/// Jobs that may wait for the log's writer.
pub const WRITER_QUEUE_MAX: usize = 1_024;
/// Jobs that one commit of the log's writer may carry.
pub const GROUP_COMMIT_MAX: usize = 256;
/// Connections that read the log side by side.
pub const READ_POOL_SIZE: usize = 3;
/// Bytes of one answer of a route, all of it.
pub const ROUTE_BODY_BYTES_MAX: usize = 16_777_216;
/// Bytes of one line of an event stream.
pub const SSE_LINE_BYTES_MAX: usize = 4_194_304;
/// Bytes of a route's error body that are kept.
pub const ROUTE_ERROR_BYTES_MAX: usize = 4_096;
/// Longest pause before a retry, whatever a route asks for.
pub const RETRY_PAUSE_MS_MAX: u64 = 120_000;
/// Instruction file of a workspace (`AGENTS.md`).
pub const INSTRUCTION_BYTES_MAX: usize = 65_536;
/// Configuration file.
pub const CONFIG_BYTES_MAX: u64 = 1_048_576;
/// Files of one release of hook source.
pub const RELEASE_FILES_MAX: usize = 128;
/// Bytes of one release of hook source.
pub const RELEASE_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Default of `limits.sessions`.
pub const SESSIONS_DEFAULT: usize = 64;
/// Default of `limits.interrupt_grace_ms`.
pub const INTERRUPT_GRACE_MS_DEFAULT: u64 = 5_000;
/// Default of `limits.hello_ms`: the time that a new worker has for its `hello`.
pub const HELLO_MS_DEFAULT: u64 = 10_000;
/// Default of `limits.stop_grace_ms`.
pub const STOP_GRACE_MS_DEFAULT: u64 = 10_000;
/// Default of `limits.steps_per_turn`.
pub const STEPS_PER_TURN_DEFAULT: u32 = 64;
/// Default of `limits.requests_per_hour`.
pub const REQUESTS_PER_HOUR_DEFAULT: u32 = 600;
/// Default of `limits.tokens_per_day`.
pub const TOKENS_PER_DAY_DEFAULT: u64 = 20_000_000;
/// Default of `limits.cell_ms`: the longest that one cell may run. Zero is no bound.
pub const CELL_MS_DEFAULT: u64 = 3_600_000;
