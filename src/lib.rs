//! klbr: one long-lived agent on a Linux machine, run as a proper system service.
//!
//! The map, layer by layer; a module uses only what stands below it (`tests/architecture.rs`).

// Edge: what an operator sees, and what starts everything.
pub mod cli;
pub mod init;
pub mod operator;
pub mod serve;

// Deciders: what happens next, and why.
pub mod prompt;
pub mod requests;
pub mod session;
pub mod worker;

// Boundaries: bytes, processes, files, HTTP; they do not know one another.
pub mod containment;
pub mod route;
pub mod store;
pub mod systemd;
pub mod wire;

// Vocabulary.
pub mod cell;
pub mod clock;
pub mod config;
pub mod event;
pub mod id;
pub mod limits;
pub mod notice;
pub mod release;
