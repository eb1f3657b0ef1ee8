//! klbr: one long-lived agent on a Linux machine, run as a proper system service.
//!
//! The map, layer by layer; a module uses only what stands below it (`tests/architecture.rs`).

pub mod prompt;

pub mod wire;

pub mod cell;

pub mod clock;
pub mod config;
pub mod event;
pub mod id;
pub mod limits;
