//! What a service manager gives a host, and what it is told: sockets, readiness, a watchdog.
//!
//! sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3). Everything here does nothing where there is no
//! service manager.

pub mod listen;
pub mod notify;
pub mod unit;
