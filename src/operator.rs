//! The operator socket: a small Varlink service (`org.klbr.Operator`), and its client.
//!
//! Owns framing, admission, paging and the words of errors. Must not know SQL, or how a session does
//! what it is asked.

pub mod client;
pub mod event_object;
pub mod fault;
pub mod listener;
pub mod message;
pub mod methods;
pub mod server;

pub use fault::Fault;
pub use listener::OperatorError;

/// The interface's name.
pub const INTERFACE: &str = "org.klbr.Operator";
/// The interface's version, `interface_version` of its status.
pub const INTERFACE_VERSION: u32 = 1;
/// The interface's description, as `GetInterfaceDescription` answers it.
pub const DESCRIPTION: &str = include_str!("operator/org.klbr.Operator.varlink");
