//! The control protocol between host and worker: bytes to typed messages and back, no I/O.
//!
//! klbr-protocol(7) is its document. Must not know who is at the other end, or why.

pub mod envelope;
pub mod frame;
pub mod message;
pub mod strict_json;
