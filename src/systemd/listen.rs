//! Sockets that a service manager holds open for us.

use std::os::unix::net::UnixListener;

/// Name of the operator socket in its unit (`FileDescriptorName=`).
const OPERATOR: &str = "operator";

/// The sockets that were handed over.
#[derive(Debug, Default)]
pub struct Handed {
    /// The operator socket.
    pub operator: Option<UnixListener>,
    /// Names of sockets that this version has no use for; they are closed.
    pub unknown: Vec<String>,
}

/// Takes the sockets of the service manager, once, before there are threads: their variables are
/// removed from the environment, so that no child takes them for its own.
pub fn take() -> Handed {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names: Vec<&str> = names.split(':').collect();
    let mut descriptors = listenfd::ListenFd::from_env();
    let mut handed = Handed::default();
    for index in 0..descriptors.len() {
        let name = names.get(index).copied().unwrap_or_default();
        // One socket without a name is the operator's: there is no other.
        let is_operator = name == OPERATOR || (descriptors.len() == 1 && matches!(name, "" | "unknown"));
        match descriptors.take_unix_listener(index) {
            Ok(Some(listener)) if is_operator && handed.operator.is_none() => {
                // It is handed over without: a worker would inherit its operator's socket.
                let closed = rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC);
                handed.operator = closed.is_ok().then_some(listener);
            }
            Ok(_) | Err(_) => handed.unknown.push(name.to_owned()),
        }
    }
    handed
}
