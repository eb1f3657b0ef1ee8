//! What the model is shown: events in, bytes out, and nothing else.
//!
//! No clock, no random order, nothing that changes when it is rendered again: a request that was
//! ever sent can be rebuilt from the log. Must not know how events are stored or sent.

pub mod assemble;
pub mod frame;
pub mod header;
pub mod tool;

pub use assemble::{Assembly, Sequence};
pub use header::Header;
