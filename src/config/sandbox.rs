//! What a worker may see and use: `[sandbox]`.

use std::path::PathBuf;

use serde::Deserialize;

/// Smallest `tasks_max` that a worker starts with.
const TASKS_MIN: u64 = 16;

/// `[sandbox]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// What a worker sees of the home directory.
    pub home: SandboxHome,
    /// More paths to read.
    pub read_only: Vec<PathBuf>,
    /// More paths to write.
    pub read_write: Vec<PathBuf>,
    /// Whether a worker reaches the network.
    pub network: bool,
    /// Memory of one generation, such as `2G`.
    pub memory_max: Option<String>,
    /// Processes and threads of one generation.
    pub tasks_max: Option<u64>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            home: SandboxHome::ReadOnly,
            read_only: Vec::new(),
            read_write: Vec::new(),
            network: true,
            memory_max: None,
            tasks_max: None,
        }
    }
}

impl Sandbox {
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        for (name, paths) in [("read_only", &self.read_only), ("read_write", &self.read_write)] {
            if let Some(path) = paths.iter().find(|path| !path.is_absolute() || path.to_str().is_none()) {
                // A service manager takes no other.
                return Err((name, format!("has {path:?}; write absolute paths, in UTF-8")));
            }
        }
        if self.memory_max.is_some() && self.memory_max_bytes().is_none() {
            let problem = format!("is {:?}; write a size such as \"512M\" or \"2G\"", self.memory_max);
            return Err(("memory_max", problem));
        }
        if self.tasks_max.is_some_and(|tasks| tasks < TASKS_MIN) {
            return Err((
                "tasks_max",
                format!("must be at least {TASKS_MIN}: a worker has threads of its own"),
            ));
        }
        Ok(())
    }

    /// `memory_max` in bytes.
    #[must_use]
    pub fn memory_max_bytes(&self) -> Option<u64> {
        self.memory_max.as_deref().and_then(bytes_of)
    }
}

/// A size such as `2G`: a number with K, M, G or T, powers of 1024, or bytes.
fn bytes_of(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        (at, 'T') => (&text[..at], 1_u64 << 40),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// `sandbox.home`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxHome {
    /// Not at all.
    Hidden,
    /// To read.
    ReadOnly,
    /// To write.
    ReadWrite,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_bytes_or_a_power_of_1024() {
        let cases = [
            ("1", Some(1)),
            ("4K", Some(4 << 10)),
            ("512M", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("1T", Some(1 << 40)),
            ("", None),
            ("G", None),
            ("0", None),
            ("2GB", None),
            ("-1", None),
            ("1.5G", None),
            ("99999999T", None),
            ("2\u{1d5a6}", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }

    #[test]
    fn tasks_have_a_least_number() {
        let with = |tasks| Sandbox { tasks_max: Some(tasks), ..Sandbox::default() }.check();

        assert_eq!(with(TASKS_MIN), Ok(()));
        assert!(with(TASKS_MIN - 1).is_err());
    }
}
