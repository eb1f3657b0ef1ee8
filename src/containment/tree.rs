//! The process tree as `/proc` shows it, and signals that reach exactly who was meant.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, told apart from a later one with the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// In clock ticks since boot.
    started: u64,
}

#[derive(Debug, Clone, Copy)]
struct Stat {
    parent: i32,
    started: u64,
    zombie: bool,
}

/// All processes at a moment.
pub(super) struct Table {
    stats: HashMap<i32, Stat>,
}

impl Table {
    /// Reads `/proc`. A process that ends meanwhile is left out.
    pub(super) fn read() -> Self {
        let mut stats = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(stat) = stat(pid) {
                stats.insert(pid, stat);
            }
        }
        Self { stats }
    }

    /// Reads `pid` and what is above it, and nothing else: enough to ask where one process belongs.
    pub(super) fn above(pid: i32) -> Self {
        let mut stats = HashMap::new();
        let mut next = Some(pid);
        while let Some(pid) = next {
            let found = stat(pid);
            next = found.map(|stat| stat.parent).filter(|parent| *parent > 0 && !stats.contains_key(parent));
            if let Some(stat) = found {
                stats.insert(pid, stat);
            }
        }
        Self { stats }
    }

    /// Everything alive below `ancestor`, and not below one of `except`.
    pub(super) fn descendants(&self, ancestor: i32, except: &HashSet<i32>) -> Vec<Process> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, stat) in &self.stats {
            children.entry(stat.parent).or_default().push(*pid);
        }
        let mut found = Vec::new();
        let mut open = vec![ancestor];
        while let Some(parent) = open.pop() {
            for pid in children.get(&parent).into_iter().flatten() {
                if except.contains(pid) {
                    continue;
                }
                open.push(*pid);
                if let Some(stat) = self.stats.get(pid).filter(|stat| !stat.zombie) {
                    found.push(Process { pid: *pid, started: stat.started });
                }
            }
        }
        found
    }

    /// Whether `pid` is one of `ancestors` or below one.
    pub(super) fn is_below(&self, pid: i32, ancestors: &HashSet<i32>) -> bool {
        let mut pid = pid;
        // A chain is never longer than there are processes; a loop would be the kernel's fault.
        for _ in 0..=self.stats.len() {
            if ancestors.contains(&pid) {
                return true;
            }
            match self.stats.get(&pid) {
                Some(stat) if stat.parent > 0 => pid = stat.parent,
                Some(_) | None => return false,
            }
        }
        false
    }

    /// Children of `parent` that have ended and wait to be reaped.
    pub(super) fn ended_children(&self, parent: i32) -> Vec<i32> {
        let ended = self.stats.iter().filter(|(_, stat)| stat.zombie && stat.parent == parent);
        ended.map(|(pid, _)| *pid).collect()
    }

    /// Whether a process, or one above it, was started with this variable.
    pub(super) fn inherits_variable(&self, pid: i32, name: &str, value: &str) -> bool {
        let mut pid = pid;
        for _ in 0..=self.stats.len() {
            if has_variable(pid, name, value) {
                return true;
            }
            match self.stats.get(&pid) {
                Some(stat) if stat.parent > 1 => pid = stat.parent,
                Some(_) | None => return false,
            }
        }
        false
    }

    /// Everything alive whose environment has this variable with this value.
    pub(super) fn with_variable(&self, name: &str, value: &str) -> Vec<Process> {
        let alive = self.stats.iter().filter(|(_, stat)| !stat.zombie);
        alive
            .filter(|(pid, _)| has_variable(**pid, name, value))
            .map(|(pid, stat)| Process { pid: *pid, started: stat.started })
            .collect()
    }
}

/// Whether a process was started with this variable. No for one that may not be looked at.
fn has_variable(pid: i32, name: &str, value: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let wanted = [name.as_bytes(), b"=", value.as_bytes()].concat();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, parentheses included: the last one ends it.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let rest = std::str::from_utf8(text.get(after_name..)?).ok()?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(Stat {
        zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Sends a signal to exactly this process: its number is pinned first, and looked at again, so that
/// a later process with the same number is never reached.
pub(super) fn send(process: Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(pinned) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if stat(process.pid).is_some_and(|stat| stat.started == process.started) {
        // It may end before the signal comes: then there is nothing left to do.
        let _ = pidfd_send_signal(&pinned, signal);
    }
}

/// How often new processes may turn up before killing starts all the same.
const STOP_PASSES_MAX: usize = 64;

/// Kills what `find` finds, once: stops everything until nothing new turns up, so that nobody forks
/// while the others die, and then kills. How many there were.
pub(super) fn kill_pass(find: impl Fn(&Table) -> Vec<Process>) -> usize {
    let mut stopped: HashSet<Process> = HashSet::new();
    for _ in 0..STOP_PASSES_MAX {
        let found = find(&Table::read());
        let new: Vec<Process> = found.into_iter().filter(|process| stopped.insert(*process)).collect();
        if new.is_empty() {
            break;
        }
        for process in new {
            send(process, Signal::STOP);
        }
    }
    for process in &stopped {
        send(*process, Signal::KILL);
    }
    stopped.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_below_its_parent_and_a_bystander_is_not() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let table = Table::read();

        for table in [&table, &Table::above(pid)] {
            assert!(table.is_below(pid, &HashSet::from([own])));
            assert!(!table.is_below(own, &HashSet::from([pid])));
        }
        assert!(table.descendants(own, &HashSet::new()).iter().any(|process| process.pid == pid));
        assert!(table.descendants(own, &HashSet::from([pid])).iter().all(|process| process.pid != pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_signal_for_an_earlier_process_of_the_same_number_reaches_nobody() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let real = stat(pid).unwrap();
        send(Process { pid, started: real.started + 1 }, Signal::KILL);

        assert!(child.try_wait().unwrap().is_none());
        send(Process { pid, started: real.started }, Signal::KILL);
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_name_full_of_parentheses_does_not_hide_the_parent() {
        let own = i32::try_from(std::process::id()).unwrap();

        assert!(stat(own).is_some_and(|stat| stat.parent > 0 && !stat.zombie));
    }
}
