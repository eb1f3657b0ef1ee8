//! What the host may do on the machine: less than whoever started it.
//!
//! capabilities(7). Called before there are threads: capabilities are each thread's own.

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::ServeError;

/// What a host needs that runs as root: to see and kill workers that changed their user, and to read
/// and write files whoever owns them.
const NEEDED_BY_ROOT: CapabilitySet = CapabilitySet::KILL
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_NICE);

/// Closes the process to its neighbours, and drops every capability that a host does not need, for all
/// that it starts too. Root is refused where nobody said that it is meant.
pub(super) fn drop_what_is_not_needed(allow_root: bool) -> Result<(), ServeError> {
    // No core dump, and no look into its memory or its environment by another process of the same user.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(ServeError::privilege)?;
    let is_root = rustix::process::geteuid().is_root();
    if is_root && !allow_root {
        return Err(ServeError::Root);
    }
    let needed = if is_root { NEEDED_BY_ROOT } else { CapabilitySet::empty() };
    let had = rustix::thread::capabilities(None).map_err(ServeError::privilege)?;
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !needed.contains(one)
            && rustix::thread::capability_is_in_bounding_set(one).unwrap_or(false)
            && had.effective.contains(CapabilitySet::SETPCAP)
        {
            rustix::thread::remove_capability_from_bounding_set(one).map_err(ServeError::privilege)?;
        }
    }
    if needed.contains(had.permitted) && had.inheritable.is_empty() {
        // A service manager has seen to it, and may have forbidden the call as well.
        return Ok(());
    }
    // An old kernel has no ambient set, and then none is in it.
    let _ = rustix::thread::clear_ambient_capability_set();
    let kept = had.permitted & needed;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(ServeError::privilege)
}
